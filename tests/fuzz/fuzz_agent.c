/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the node's agent reads.
 *
 * owner: a text of /proc/PID/cgroup, and behind a NUL each a name of a file that the
 * kubelet made; config: a configuration, and behind NULs what a rule is asked about;
 * http: a request: method and path, then headers by line.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/config.h"
#include "agent/http_int.h"
#include "agent/owner.h"
#include "agent/rule.h"

/* The text behind the NUL that ends `s`; "" behind the last. */
static const char *next(const char *s, const char *end)
{
	s += strlen(s);
	return s < end ? s + 1 : s;
}

/* ---- owner ---------------------------------------------------------------------- */

#define DIGITS "0123456789"
#define LETTERS DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-."

static void only(const char *s, size_t size, const char *of)
{
	FUZZ_HOLDS(memchr(s, 0, size) && !s[strspn(s, of)]);
}

static void check_owner(const struct pt_owner *o)
{
	only(o->runtime, sizeof(o->runtime), LETTERS);
	only(o->container, sizeof(o->container), LETTERS);
	only(o->pod_uid, sizeof(o->pod_uid), DIGITS "abcdef-");
	only(o->pod, sizeof(o->pod), LETTERS);
	only(o->pod_namespace, sizeof(o->pod_namespace), LETTERS);
	only(o->container_name, sizeof(o->container_name), LETTERS);
	only(o->slurm_job, sizeof(o->slurm_job), DIGITS);
	only(o->slurm_step, sizeof(o->slurm_step), LETTERS);
	FUZZ_HOLDS(!*o->pod_uid == !o->kubelet);
}

void owner_run(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	const char *s, *end = text + size;
	struct pt_owner o;

	pt_owner_cgroup(text, &o);
	check_owner(&o);
	for (s = next(text, end); s < end; s = next(s, end)) {
		pt_owner_container_log(s, &o);
		pt_owner_pod_log(s, &o);
		check_owner(&o);
	}
	fake_file("/cgroup", text, strlen(text));
	if (!pt_owner_of(7, "/proc/no/logs", &o))
		check_owner(&o);
	fake_clear();
	free(text);
}

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define UID "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
#define UID_ "0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9"
#define HASH "0123456789abcdef0123456789abcdef"

void owner_seeds(void)
{
	static const char *const of[] = {
		"0::/system.slice/docker-" ID ".scope\n",
		"12:cpu,cpuacct:/docker/" ID "\n3:memory:/docker/" ID "\n",
		"0::/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope/x\n",
		"4:memory:/kubepods/burstable/pod" HASH "/" ID "\n",
		"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod"
		UID_ ".slice:cri-containerd:" ID "\n",
		"0::/machine.slice/libpod-" ID ".scope/container\n",
		"0::/lxc.payload.web-1/user.slice\n",
		"3:cpu:/lxc/web-2\n",
		"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n",
		"9:memory:/slurm_n/uid_1000/job_99/step_batch/task_0\n",
		"0::/../../kubepods-besteffort-pod" UID_ ".slice/crio-" ID ".scope\n",
	};
	static const char names[] =
		"4:memory:/kubepods/besteffort/pod" UID "/" ID "\n\0"
		"web-1_prod_main-" ID ".log\0" "prod_web-1_" UID "\0" "a_b_c";
	char name[16];
	size_t i;

	fuzz_seed("names", names, sizeof(names));
	for (i = 0; i < sizeof(of) / sizeof(*of); i++) {
		snprintf(name, sizeof(name), "cgroup-%zu", i);
		fuzz_seed_text(name, of[i]);
	}
}

/* ---- config --------------------------------------------------------------------- */

void config_run(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	const char *end = text + size;
	struct pt_config *c = malloc(sizeof(*c));
	struct pt_err err = { "" };
	struct pt_rule_facts f;

	if (!c)
		abort();
	if (pt_config_parse(text, "a.conf", c, &err)) {
		FUZZ_HOLDS(!strncmp(err.msg, "a.conf:", 7));
	} else {
		FUZZ_HOLDS(c->sample_s > 0 && c->sample_s <= c->interval_s / 2);
		FUZZ_HOLDS(c->max_jobs && c->memory && c->cpu > 0);
	}
	f.comm = next(text, end);
	f.cmdline = next(f.comm, end);
	f.user = next(f.cmdline, end);
	f.cgroup = next(f.user, end);
	FUZZ_HOLDS(pt_rule_decide(c, &f) == PT_RULE_NONE || c->n_rules);
	fake_file("/conf", data, size);
	if (pt_config_read("/proc/conf", c, &err))
		FUZZ_HOLDS(err.msg[0]);
	fake_clear();
	free(c);
	free(text);
}

void config_seeds(void)
{
	static const char whole[] =
		"# a comment\n[agent]\ninterval = 5m\nsample=500ms\ndiscover = 10s\n"
		"expire = 1d\naligned = yes\ngpu-jobs = no\nat-once = 2\nmax-jobs = 9\n"
		"mode = light\nstate = /s\nnode = $HOME\n[budget]\ncpu = 5%\nmemory = 64M\n"
		"[evidence]\nkeep = true\nage = 7d\nsize = 2G\n[http]\nlisten = [::1]:80\n"
		"cert = /c\nkey = /k\n[otlp]\nendpoint = https://h:4318\nqueue = 1M\n"
		"[labels]\nteam = a\n[job one]\ncomm = py*\nuser = ?ob\ncmdline = *train*\n"
		"cgroup = /a/*\n[job two]\nexclude = yes\ncomm = x\n\0"
		"python\0python train.py\0bob\0" "0::/a/b\n";

	fuzz_seed("whole", whole, sizeof(whole));
	fuzz_seed_text("no-section", "a = b\n");
	fuzz_seed_text("unknown", "[agent]\nwhat = b\n");
	fuzz_seed_text("unknown-section", "[what]\na = b\n");
	fuzz_seed_text("twice", "[agent]\nsample = 5s\nsample = 6s\n");
	fuzz_seed_text("range", "[agent]\nsample = 9999d\nat-once = 99\n");
	fuzz_seed_text("alone", "[http]\ncert = /c\n");
	fuzz_seed_text("endpoint", "[otlp]\nendpoint = ftp://x\n");
	fuzz_seed_text("pattern", "[job a]\nexclude = no\n");
	fuzz_seed_text("mode", "[agent]\nmode = odd\naligned = maybe\nstate = rel\n");
}

/* ---- http ----------------------------------------------------------------------- */

#define EVIDENCE 0x7ffffff0 /* the folder's descriptor */
#define TOKEN "t0ken"

static struct {
	const char *headers, *end;
	unsigned status;
	bool local, trusted; /* it came by the socket in the file system, from root */
	struct MHD_Daemon *daemon;
	struct pt_http_client client;
} request;

const union MHD_ConnectionInfo *__wrap_MHD_get_connection_info(
	struct MHD_Connection *c, enum MHD_ConnectionInfoType what, ...);
const union MHD_ConnectionInfo *__wrap_MHD_get_connection_info(
	struct MHD_Connection *c, enum MHD_ConnectionInfoType what, ...)
{
	static union MHD_ConnectionInfo i;

	(void)c;
	if (what == MHD_CONNECTION_INFO_DAEMON)
		i.daemon = request.local ? request.daemon : NULL;
	else
		i.connect_fd = -1;
	return &i;
}

bool __wrap_pt_http_local_trusts(int fd);
bool __wrap_pt_http_local_trusts(int fd)
{
	(void)fd;
	return request.trusted;
}

/* Of the same name, as libmicrohttpd has it: the last one. */
const char *__wrap_MHD_lookup_connection_value(struct MHD_Connection *c,
					       enum MHD_ValueKind kind, const char *name);
const char *__wrap_MHD_lookup_connection_value(struct MHD_Connection *c,
					       enum MHD_ValueKind kind, const char *name)
{
	size_t n = strlen(name);
	const char *s;

	(void)c;
	(void)kind;
	for (s = request.headers; s < request.end; s = next(s, request.end))
		if (!strncasecmp(s, name, n) && s[n] == ':')
			return s + n + 1 + strspn(s + n + 1, " ");
	return NULL;
}

enum MHD_Result __wrap_MHD_queue_response(struct MHD_Connection *c, unsigned status,
					  struct MHD_Response *r);
enum MHD_Result __wrap_MHD_queue_response(struct MHD_Connection *c, unsigned status,
					  struct MHD_Response *r)
{
	(void)c;
	FUZZ_HOLDS(r != NULL);
	request.status = status;
	return MHD_YES;
}

struct pt_http_client *__wrap_pt_http_client_of(struct MHD_Connection *c);
struct pt_http_client *__wrap_pt_http_client_of(struct MHD_Connection *c)
{
	(void)c;
	return &request.client;
}

int __real_open(const char *path, int flags, ...);
int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...)
{
	if (dir != EVIDENCE)
		return __real_openat(dir, name, flags, 0);
	FUZZ_HOLDS(!strchr(name, '/') && *name != '.');
	if (*name == 'b') /* no file */
		return __real_open("/", O_RDONLY | O_CLOEXEC);
	return *name == 'a' ? memfd_create("evidence", MFD_CLOEXEC) : -1;
}

static struct pt_http_text *text_of(size_t len)
{
	struct pt_http_text *t = calloc(1, sizeof(*t));

	if (!t || !(t->text = calloc(1, len + 1)))
		abort();
	t->refs = 1;
	t->len = len;
	return t;
}

/* Which answers there can be, and that only who has the token gets them. */
static void check_answer(const char *url, bool open)
{
	const char *a = __wrap_MHD_lookup_connection_value(NULL, MHD_HEADER_KIND,
							   "Authorization");
	bool knows = (a && !strncasecmp(a, "Bearer ", 7) && strstr(a, TOKEN)) ||
		     (request.local && request.trusted);

	FUZZ_HOLDS(request.status == 200 || request.status == 401 ||
		   request.status == 404 || request.status == 405 ||
		   request.status == 503);
	if (request.status == 200 || request.status == 404 || request.status == 503)
		FUZZ_HOLDS(knows || !strcmp(url, "/healthz") ||
			   (open && !strcmp(url, "/metrics")));
}

static void ask(struct pt_http *h, const char *method, const char *url, size_t body)
{
	void *state = NULL;

	request.status = 0;
	if (pt_http_answer(h, NULL, url, method, "HTTP/1.1", NULL, &body, &state) ==
		    MHD_YES && !request.status &&
	    pt_http_answer(h, NULL, url, method, "HTTP/1.1", NULL, &body, &state) ==
		    MHD_NO)
		FUZZ_HOLDS(body);
	else
		check_answer(url, h->open_metrics);
	pt_http_completed(h, NULL, &state, MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

void http_run(const uint8_t *data, size_t size)
{
	static struct pt_http h = { .evidence = EVIDENCE, .lock = PTHREAD_MUTEX_INITIALIZER };
	char *all = fuzz_text(data, size), *url, *s;
	struct sockaddr_storage sa;
	socklen_t len;
	int i;

	if (!h.healthy && pt_http_answers_make(&h))
		abort();
	fake_file("/token", TOKEN "\n", strlen(TOKEN) + 1);
	h.token.path = size % 16 == 15 ? NULL : (char *)"/proc/token";
	h.token.looked = size % 16 && h.token.len ? 1e300 : 0; /* or anew */
	h.open_metrics = size & 1;
	h.daemon[PT_HTTP_LOCAL] = request.daemon = (struct MHD_Daemon *)&h;
	request.local = size % 16 < 4;
	request.trusted = size % 16 < 2;
	if (size & 2)
		h.page[PT_PAGE_OPENMETRICS] = text_of(2000);
	h.page[PT_PAGE_METRICS] = text_of(5000);
	h.page[PT_PAGE_JOBS] = text_of(9);
	h.page[PT_PAGE_EVIDENCE] = text_of(0);
	for (s = all; (s = strchr(s, '\n'));)
		*s++ = '\0';
	request.headers = next(all, all + size);
	request.end = all + size;
	url = strchr(all, ' ');
	if (url)
		*url++ = '\0';
	/* the second time the pages are there already, compressed or not */
	ask(&h, all, url ? url : "/", size % 8 == 7);
	ask(&h, all, url ? url : "/", 0);
	for (i = 0; i < PT_PAGE_NR; i++) {
		pt_http_text_unref(h.page[i]);
		h.page[i] = NULL;
	}
	pt_http_address(all, &sa, &len);
	pt_http_evidence(all);
	fake_clear();
	free(all);
}

void http_seeds(void)
{
	fuzz_seed_text("metrics", "GET /metrics\nAuthorization: Bearer " TOKEN "\n"
		       "Accept: text/plain;q=0.5, application/openmetrics-text;q=0.4\n"
		       "Accept-Encoding: gzip;q=1.0, *;q=0\n");
	fuzz_seed_text("openmetrics", "GET /metrics\nAuthorization: bearer  " TOKEN "\n"
		       "Accept: application/openmetrics-text; version=1.0.0;q=0.75\n");
	fuzz_seed_text("jobs", "HEAD /jobs\nAuthorization: Bearer " TOKEN "\n"
		       "Accept-Encoding: deflate, GZIP;Q=0.001");
	fuzz_seed_text("evidence", "GET /evidence\nAuthorization: Bearer " TOKEN);
	fuzz_seed_text("file", "GET /evidence/a0-1.ptrace\nAuthorization: Bearer " TOKEN);
	fuzz_seed_text("html", "GET /evidence/a.html\nAuthorization: Bearer " TOKEN);
	fuzz_seed_text("out", "GET /evidence/../token\nAuthorization: Bearer " TOKEN);
	fuzz_seed_text("healthz", "GET /healthz");
	fuzz_seed_text("folder", "GET /evidence/b.html\nAuthorization: Bearer " TOKEN);
	fuzz_seed_text("none", "GET /evidence/c.json\nAuthorization: Bearer " TOKEN);
	fuzz_seed_text("other", "GET /\nAuthorization: Bearer " TOKEN);
	fuzz_seed_text("nobody", "GET /jobs\nAuthorization: Bearer other\nAccept: a\n");
	fuzz_seed_text("post", "POST /jobs");
	fuzz_seed_text("address", "127.0.0.1:9753");
	fuzz_seed_text("address6", "[::1]:0");
}
