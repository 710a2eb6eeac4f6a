/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/seccomp.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/session.h"

_Static_assert(sizeof(struct sock_filter) == 8, "what the programs copy");

struct pt_seccomp {
	struct pipetrace_bpf *skel;
	struct pt_seccomp_cell cell;
	struct sock_filter code[BPF_MAXINSNS];
};

/* Of all programs and maps the one that this needs. 0 or -errno. */
static int load_one(struct pipetrace_bpf *s)
{
	struct bpf_program *p;
	struct bpf_map *m;

	bpf_object__for_each_program(p, s->obj)
		bpf_program__set_autoload(p, p == s->progs.pt_iter_seccomp);
	bpf_object__for_each_map(m, s->obj)
		bpf_map__set_autocreate(m, m == s->maps.pt_seccomp);
	/* the skeleton's own way would map maps that are not there */
	return bpf_object__load(s->obj);
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

struct pt_seccomp *pt_seccomp_open(void)
{
	int types = memfd_create("pipetrace-types", MFD_CLOEXEC), ret;
	struct pt_seccomp *s = calloc(1, sizeof(*s));
	libbpf_print_fn_t old = libbpf_set_print(quiet);

	ret = types < 0 ? -errno : !s ? -ENOMEM : pt_skeleton_open(&s->skel, types);
	ret = ret ?: load_one(s->skel);
	if (!ret) {
		s->skel->links.pt_iter_seccomp =
			bpf_program__attach(s->skel->progs.pt_iter_seccomp);
		ret = s->skel->links.pt_iter_seccomp ? 0 : -errno;
	}
	libbpf_set_print(old);
	if (types >= 0)
		close(types);
	if (!ret)
		return s;
	pt_seccomp_close(s);
	errno = -ret;
	return NULL;
}

int pt_seccomp_filter(struct pt_seccomp *s, pid_t tid, unsigned which,
		      const struct sock_filter **code)
{
	int map = bpf_map__fd(s->skel->maps.pt_seccomp), ret;
	const uint32_t key = 0;

	memset(&s->cell, 0, sizeof(s->cell));
	s->cell.tid = (uint32_t)tid;
	s->cell.which = which;
	s->cell.len = PT_SECCOMP_NOBODY;
	if (which >= PT_SECCOMP_MAX)
		return -E2BIG;
	ret = bpf_map_update_elem(map, &key, &s->cell, BPF_ANY);
	ret = ret ?: pt_iter_run(bpf_iter_create(bpf_link__fd(s->skel->links.pt_iter_seccomp)));
	ret = ret ?: bpf_map_lookup_elem(map, &key, &s->cell);
	if (ret)
		return ret;
	if (s->cell.len == PT_SECCOMP_NONE)
		return 0;
	if (s->cell.len <= 0 || s->cell.len > BPF_MAXINSNS)
		return s->cell.len == PT_SECCOMP_NOBODY ? -ESRCH : -ENODATA;
	memcpy(s->code, s->cell.code, (size_t)s->cell.len * sizeof(s->code[0]));
	*code = s->code;
	return s->cell.len;
}

void pt_seccomp_close(struct pt_seccomp *s)
{
	if (!s)
		return;
	pipetrace_bpf__destroy(s->skel);
	free(s);
}
