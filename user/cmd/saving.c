// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/saving.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "report/about.h"
#include "store/recorder.h"
#include "store/shrink.h"

/* A disk that takes longer than this is not waited for. */
#define CLOSE_MS 10000

int pt_saving_open(struct pt_saving *s, const char *path, struct pt_err *err)
{
	return pt_outfile_open(&s->out, path, err);
}

static int put_about(struct pt_saving *s, const struct pt_report *r)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	int ret = f ? pt_about_write(r, s->marks, f) : -ENOMEM;

	if (f && fclose(f) && !ret)
		ret = -ENOMEM;
	ret = ret ?: pt_recorder_about(s->rec, text, n);
	free(text);
	return ret;
}

/* On the recorder's thread; the session touches `out` before and behind it. */
static int open_again(void *ctx, FILE **f)
{
	struct pt_saving *s = ctx;
	struct pt_err err;
	int ret;

	pt_outfile_abandon(&s->next);
	ret = pt_outfile_open(&s->next, s->out.path, &err);
	*f = s->next.f;
	return ret;
}

static int publish_again(void *ctx)
{
	struct pt_saving *s = ctx;
	struct pt_err err;
	int ret = pt_outfile_publish(&s->next, &err);

	if (ret)
		return ret;
	pt_outfile_abandon(&s->out); /* the name is the new one's */
	s->out = s->next;
	memset(&s->next, 0, sizeof(s->next));
	s->next.dir = -1;
	return 0;
}

int pt_saving_begin(struct pt_saving *s, const struct pt_report *r,
		    struct pt_err *err)
{
	const struct pt_again again = { open_again, publish_again, s };
	int ret;

	if (!s->out.f)
		return 0;
	s->next.dir = -1;
	ret = pt_outfile_publish(&s->out, err);
	if (ret)
		return ret;
	ret = pt_recorder_open(&s->rec, s->out.f, pt_clock_ns(CLOCK_REALTIME), s->max, &again);
	ret = ret ?: put_about(s, r);
	return ret ? pt_err_set(err, ret, "cannot write %s: %s", s->out.path,
				strerror(-ret)) : 0;
}

void pt_saving_record(struct pt_saving *s, const void *rec, size_t len)
{
	if (s->rec)
		pt_recorder_put(s->rec, rec, len);
}

static void tell(struct pt_saving *s, int err)
{
	if (s->failed)
		return;
	s->failed = true;
	pt_note("the recording is cut short: cannot write %s: %s", s->out.path,
		err == -ETIMEDOUT ? "the disk does not answer" : strerror(-err));
}

void pt_saving_tick(struct pt_saving *s)
{
	struct pt_recorder_state now;

	if (!s->rec)
		return;
	pt_recorder_flush(s->rec);
	pt_recorder_state(s->rec, &now);
	if (now.error)
		tell(s, now.error);
}

int pt_saving_end(struct pt_saving *s, const struct pt_report *r)
{
	struct pt_recorder_state now;
	struct pt_err err = { "" };
	char *name;
	int ret, more;

	if (!s->rec)
		return 0;
	more = put_about(s, r);
	ret = pt_recorder_close(s->rec, CLOSE_MS, &now);
	s->rec = NULL;
	ret = ret ? ret : more;
	if (ret)
		tell(s, ret);
	if (ret == -ETIMEDOUT) {
		/* its thread may still be writing: leave all to it */
		memset(&s->out, 0, sizeof(s->out));
		s->out.dir = -1;
		return ret;
	}
	pt_outfile_abandon(&s->next);
	if (now.gone)
		pt_note("%s holds the newest part: %" PRIu64 " older records "
			"were dropped to keep its size", s->out.path, now.gone);
	if (now.dropped)
		pt_note("%s is missing %" PRIu64 " records: the disk could not keep "
			"up", s->out.path, now.dropped);
	name = strdup(s->out.path);
	more = pt_outfile_commit(&s->out, &err);
	if (more && !ret)
		pt_error("%s", err.msg);
	else if (!ret && name)
		pt_note("recorded %s: %" PRIu64 " records, %.1f MiB", name,
			now.records, (double)now.bytes / (1 << 20));
	free(name);
	return ret ? ret : more;
}

void pt_saving_abandon(struct pt_saving *s)
{
	if (s->rec && pt_recorder_close(s->rec, CLOSE_MS, NULL) == -ETIMEDOUT)
		memset(&s->out, 0, sizeof(s->out));
	s->rec = NULL;
	if (s->out.f || s->out.path)
		pt_outfile_abandon(&s->out);
}
