// SPDX-License-Identifier: BSD-2-Clause
#include "agent/daemon.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/token.h"
#include "base/privileges.h"
#include "capture/capture.h"
#include "version.h"

#define PUBLISH_S 1.0  /* at least, between two renderings */
#define REFRESH_S 15.0 /* its own cost changes though nothing else does */
#define IDLE_S 10.0    /* the clock of the day may be set meanwhile */
#define STOP_S 2.5     /* for samples to end by themselves */
#define FLUSH_S 1.0
#define FILES_MAX 8192

static int block_signals(struct pt_agent *a)
{
	static const int which[] = { SIGHUP, SIGTERM, SIGINT };
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	for (i = 0; i < sizeof(which) / sizeof(*which); i++)
		sigaddset(&set, which[i]);
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
	    sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	a->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return a->signals < 0 ? -errno : 0;
}

/* A descriptor for each job and each client: more than the usual 1024. */
static void raise_limits(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	if (r.rlim_cur < r.rlim_max && r.rlim_cur < FILES_MAX) {
		r.rlim_cur = r.rlim_max < FILES_MAX ? r.rlim_max : FILES_MAX;
		/* with fewer, the last jobs are not found */
		if (setrlimit(RLIMIT_NOFILE, &r))
			return;
	}
}

static int read_config(const struct pt_agent_options *o, struct pt_config *c,
		       struct pt_err *err)
{
	int ret = pt_config_read(o->config, c, err);

	if (!ret && o->listen) {
		if (strlen(o->listen) >= sizeof(c->listen))
			return pt_err_set(err, -EINVAL, "--listen is too long");
		strcpy(c->listen, o->listen);
	}
	return ret;
}

static const char *or_null(const char *s)
{
	return *s ? s : NULL;
}

/* NULL: there is to be none. */
static const char *local_socket(const struct pt_config *c, char *buf, size_t cap)
{
	if (!strcmp(c->socket, "no"))
		return NULL;
	if (*c->socket)
		return c->socket;
	snprintf(buf, cap, "%.500s/socket", c->state);
	return buf;
}

static int start_http(struct pt_agent *a, struct pt_err *err)
{
	struct pt_http_options o = {
		.listen = or_null(a->c.listen), .cert = or_null(a->c.cert),
		.key = or_null(a->c.key),
		.token_file = or_null(a->c.token_file),
		.evidence = a->keeps ? a->kept.path : NULL,
		.local_or_not = !*a->c.socket,
	};
	char own[PT_CONFIG_TEXT + 16], local[PT_CONFIG_TEXT + 16];
	int ret;

	o.local = local_socket(&a->c, local, sizeof(local));
	if (!o.listen && !o.local)
		return 0;
	mkdir(a->c.state, 0700); /* what cannot be made in it says why */
	if (!o.token_file && !pt_agent_token(a->c.state, own, sizeof(own), err))
		o.own_token = own;
	else if (!o.token_file)
		pt_say(PT_SAY_WARNING, "jobs and evidence cannot be read with a token: %s",
		       err->msg);
	ret = pt_http_start(&o, &a->http, err->msg, sizeof(err->msg));
	if (!ret && *err->msg)
		pt_say(PT_SAY_WARNING, "%s", err->msg);
	return ret;
}

static int start_otlp(struct pt_agent *a, struct pt_err *err)
{
	struct pt_otlp_options o = {
		.endpoint = a->c.endpoint,
		.headers_file = or_null(a->c.headers_file),
		.ca = or_null(a->c.otlp_ca), .cert = or_null(a->c.otlp_cert),
		.key = or_null(a->c.otlp_key),
		.queue_bytes = (size_t)a->c.otlp_queue, .host = a->jobs.host,
		.version = PT_VERSION,
	};

	if (!*a->c.endpoint)
		return 0;
	return pt_otlp_start(&o, &a->otlp, err->msg, sizeof(err->msg));
}

/* What it says when it has begun, and where its pages are. */
static void ready(const struct pt_agent *a)
{
	char text[256];

	if (a->http && *a->c.listen)
		pt_say(PT_SAY_INFO, "listening on %s, port %u; each job is sampled "
		       "%.3g s in every %.3g s", a->c.listen,
		       pt_http_port(a->http), a->c.sample_s,
		       pt_agent_interval(a));
	else
		pt_say(PT_SAY_INFO, "each job is sampled %.3g s in every %.3g s",
		       a->c.sample_s, pt_agent_interval(a));
	snprintf(text, sizeof(text), "READY=1\nSTATUS=%zu jobs", a->jobs.n_live);
	pt_notify(text);
}

/* Its verdicts end with it. */
static void on_end(void *ctx, struct pt_ajob *j)
{
	struct pt_agent *a = ctx;

	/* a sample that runs is its last word */
	if (!pt_agent_is_sampled(a, j) && j->tally.has_last)
		pt_agent_changes(a, j, &j->tally.last, NULL, NULL);
	a->changed = true;
}

static int start(struct pt_agent *a, struct pt_err *err)
{
	int ret = pt_ajobs_init(&a->jobs);

	if (ret)
		return pt_err_set(err, ret, "cannot read this machine's names: %s",
				  strerror(-ret));
	a->jobs.on_end = on_end;
	a->jobs.ctx = a;
	if (*a->c.node)
		snprintf(a->jobs.host, sizeof(a->jobs.host), "%s", a->c.node);
	ret = pt_agent_keep_open(a, err);
	if (ret)
		return ret;
	pt_agent_watch_sweep(a);
	/* while there is one thread; its files are its own, so it needs no more */
	ret = pt_privileges_keep(pt_capture_keep(false), NULL, true, err);
	if (!ret && !pt_privileges_trace())
		ret = pt_err_set(err, -EPERM, "the agent loads BPF programs, for which it "
				 "needs root, or CAP_BPF and CAP_PERFMON");
	ret = ret ?: pt_filter_set(PT_FILTER_TRACE, err);
	ret = ret ?: start_http(a, err);
	ret = ret ?: start_otlp(a, err);
	return ret;
}

/* ---- reload ---------------------------------------------------------------- */

/* With TLS never: the certificate may be a new one in the same file. */
static bool same_http(const struct pt_config *a, const struct pt_config *b)
{
	return !*b->cert && !strcmp(a->listen, b->listen) && !strcmp(a->cert, b->cert) &&
	       !strcmp(a->key, b->key) && !strcmp(a->token_file, b->token_file) &&
	       !strcmp(a->socket, b->socket) && !strcmp(a->state, b->state);
}

static bool same_watch(const struct pt_config *a, const struct pt_config *b)
{
	return !strcmp(a->watch, b->watch) && a->watch_jobs == b->watch_jobs &&
	       a->watch_keep_s == b->watch_keep_s && a->adopt == b->adopt &&
	       a->watch_cooldown_s == b->watch_cooldown_s &&
	       a->watch_memory == b->watch_memory && a->evidence_size == b->evidence_size;
}

static bool same_otlp(const struct pt_config *a, const struct pt_config *b)
{
	return !strcmp(a->endpoint, b->endpoint) &&
	       !strcmp(a->headers_file, b->headers_file) &&
	       !strcmp(a->otlp_ca, b->otlp_ca) &&
	       !strcmp(a->otlp_cert, b->otlp_cert) &&
	       !strcmp(a->otlp_key, b->otlp_key) &&
	       a->otlp_queue == b->otlp_queue;
}

static void reload_http(struct pt_agent *a, const struct pt_config *old)
{
	struct pt_err err = { "" };

	pt_http_stop(a->http);
	a->http = NULL;
	if (!start_http(a, &err))
		return;
	pt_say(PT_SAY_ERROR, "the new [http] does not work: %s", err.msg);
	memcpy(a->c.listen, old->listen, sizeof(old->listen));
	memcpy(a->c.cert, old->cert, sizeof(old->cert));
	memcpy(a->c.key, old->key, sizeof(old->key));
	memcpy(a->c.token_file, old->token_file, sizeof(old->token_file));
	memcpy(a->c.socket, old->socket, sizeof(old->socket));
	if (start_http(a, &err))
		pt_say(PT_SAY_ERROR, "the old one no longer works either: %s", err.msg);
}

static void reload_otlp(struct pt_agent *a)
{
	struct pt_err err = { "" };

	pt_otlp_stop(a->otlp, FLUSH_S);
	a->otlp = NULL;
	if (start_otlp(a, &err))
		pt_say(PT_SAY_ERROR, "metrics are not pushed: %s", err.msg);
}

static void apply(struct pt_agent *a, const struct pt_config *new)
{
	struct pt_config *old = malloc(sizeof(*old));
	struct pt_err err = { "" };
	struct pt_ajob *j;
	bool moved;

	if (!old)
		return;
	*old = a->c;
	a->c = *new;
	moved = pt_agent_keep_open(a, &err) != 0 || old->evidence != new->evidence ||
		strcmp(old->evidence_dir, new->evidence_dir) ||
		strcmp(old->state, new->state);
	if (*err.msg)
		pt_say(PT_SAY_ERROR, "evidence is not kept: %s", err.msg);
	if (moved || !same_watch(old, new))
		pt_agent_watch_end(a, pt_now());
	if (moved || !same_http(old, new))
		reload_http(a, old);
	if (!same_otlp(old, new))
		reload_otlp(a);
	if (new->cpu != old->cpu || new->interval_s != old->interval_s)
		a->budget = (struct pt_budget)PT_BUDGET_OPEN(new->cpu);
	for (j = a->jobs.first; j; j = j->next)
		j->sample_s = new->sample_s;
	pt_ajobs_recheck(&a->jobs, &a->c, pt_now());
	pt_agent_budget_begin(a);
	pt_agent_reschedule(a);
	a->next_search = a->next_publish = 0;
	a->changed = true;
	free(old);
}

static void reload(struct pt_agent *a)
{
	struct pt_config *new = malloc(sizeof(*new));
	struct pt_err err = { "" };
	char text[96];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%.0f",
		 pt_now() * 1e6);
	pt_notify(text);
	if (!new || read_config(a->o, new, &err)) {
		pt_say(PT_SAY_ERROR, "the configuration stays as it was: %s",
		       new ? err.msg : "no memory");
	} else {
		apply(a, new);
		pt_say(PT_SAY_INFO, "the configuration was read again");
	}
	free(new);
	pt_notify("READY=1");
}

/* ---- the loop -------------------------------------------------------------- */

static void on_new(void *ctx, struct pt_ajob *j)
{
	struct pt_agent *a = ctx;

	j->found_unix = pt_agent_realtime();
	pt_agent_schedule_job(a, j);
	a->changed = true;
}

static void on_signals(struct pt_agent *a)
{
	struct signalfd_siginfo si;
	bool again = false;

	while (read(a->signals, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGHUP)
			again = true;
		else
			a->stopping = true;
	}
	if (again && !a->stopping)
		reload(a);
}

/* Waits until `until` for anything to happen; jobs that ended are told. */
static int wait_for(struct pt_agent *a, double until)
{
	size_t n = 0, max = a->jobs.n_live + PT_SLOTS + PT_WATCHES + 2, i;
	struct pollfd *p = calloc(max, sizeof(*p));
	double now = pt_now();
	struct pt_ajob *j;
	int ret, ms;

	if (!p)
		return -ENOMEM;
	p[n++] = (struct pollfd){ .fd = a->signals, .events = POLLIN };
	p[n++] = (struct pollfd){ .fd = a->page.pidfd, .events = POLLIN };
	for (i = 0; i < PT_SLOTS; i++)
		if (a->slot[i].job)
			p[n++] = (struct pollfd){ .fd = a->slot[i].child.pidfd,
						  .events = POLLIN };
	for (i = 0; i < PT_WATCHES; i++)
		if (a->watch[i].job)
			p[n++] = (struct pollfd){ .fd = a->watch[i].child.pidfd,
						  .events = POLLIN };
	for (j = a->jobs.first; j && n < max; j = j->next)
		if (!j->ended)
			p[n++] = (struct pollfd){ .fd = j->pidfd,
						  .events = POLLIN };
	ms = (int)ceil(1e3 * fmin(IDLE_S, fmax(0, until - now)));
	ret = poll(p, (nfds_t)n, ms);
	if (ret < 0 && errno != EINTR)
		ret = -errno;
	now = pt_now();
	for (j = a->jobs.first; ret > 0 && j; j = j->next)
		for (i = 2; !j->ended && i < n; i++)
			if (p[i].fd == j->pidfd && p[i].revents)
				pt_ajob_end(&a->jobs, j, now);
	free(p);
	return ret < 0 && ret != -1 ? ret : 0;
}

static void search(struct pt_agent *a, double now)
{
	int ret = pt_ajobs_search(&a->jobs, &a->c, now, on_new, a);

	if (ret)
		pt_say(PT_SAY_WARNING, "cannot look for jobs: %s", strerror(-ret));
	/* looking costs as well: it gives way, too, but not for an hour */
	a->next_search = now + a->c.discover_s * fmin(6, a->budget.stretch);
	if (pt_ajobs_expire(&a->jobs, now - a->c.expire_s, pt_agent_is_busy, a))
		a->changed = true;
	if (a->keeps && pt_evidence_bound(&a->kept, a->c.evidence_size,
					  a->c.evidence_age_s,
					  (uint64_t)pt_agent_realtime())) {
		pt_evidence_save(&a->kept);
		a->changed = true;
	}
}

/* Everything whose time has come; the next moment when there is something. */
static double turn(struct pt_agent *a)
{
	double now = pt_now(), next;

	if (now >= a->next_search)
		search(a, now);
	next = fmin(pt_agent_sample(a), a->next_search);
	next = fmin(next, pt_agent_watch(a));
	pt_agent_keep_pages(a);
	next = fmin(next, pt_child_tick(&a->page, now));
	pt_agent_budget_tick(a, now);
	if (a->otlp && now >= a->next_otlp) {
		pt_agent_push(a);
		a->next_otlp = now + a->c.otlp_interval_s;
	}
	if (now >= a->next_publish + (a->changed ? PUBLISH_S : REFRESH_S)) {
		pt_agent_publish(a);
		a->changed = false;
		a->next_publish = now;
	}
	next = fmin(next, a->next_publish + (a->changed ? PUBLISH_S : REFRESH_S));
	return a->otlp ? fmin(next, a->next_otlp) : next;
}

static int serve_until_told(struct pt_agent *a)
{
	double watchdog = pt_notify_watchdog(), alive = 0, next;
	int ret = 0;

	while (!a->stopping && ret >= 0) {
		next = turn(a);
		if (watchdog > 0 && pt_now() >= alive) {
			pt_notify("WATCHDOG=1");
			alive = pt_now() + watchdog / 3;
		}
		if (watchdog > 0)
			next = fmin(next, alive);
		ret = wait_for(a, next);
		on_signals(a);
	}
	return ret;
}

/* Samples get to end by themselves, so that what they saw counts, for a while. */
static void stop(struct pt_agent *a)
{
	double now = pt_now(), end = now + STOP_S;
	size_t i;

	pt_notify("STOPPING=1");
	for (i = 0; i < PT_SLOTS; i++)
		if (a->slot[i].job)
			pt_child_ask(&a->slot[i].child, now);
	pt_agent_watch_end(a, now);
	pt_child_kill(&a->page);
	while ((pt_agent_running(a) || pt_agent_watches(a)) && (now = pt_now()) < end) {
		pt_agent_sample(a);
		pt_agent_watch(a);
		if ((pt_agent_running(a) || pt_agent_watches(a)) &&
		    wait_for(a, fmin(end, now + 0.2)))
			break;
	}
	pt_agent_watch_kill(a);
	for (i = 0; i < PT_SLOTS; i++) {
		if (!a->slot[i].job)
			continue;
		pt_child_kill(&a->slot[i].child);
		if (*a->slot[i].recording)
			unlink(a->slot[i].recording);
	}
	if (a->otlp)
		pt_agent_push(a);
}

static void release(struct pt_agent *a)
{
	pt_otlp_stop(a->otlp, FLUSH_S);
	pt_http_stop(a->http);
	if (a->keeps) {
		pt_evidence_save(&a->kept);
		pt_evidence_close(&a->kept);
	}
	pt_ajobs_free(&a->jobs);
	if (a->signals >= 0)
		close(a->signals);
}

int pt_agent_run(const struct pt_agent_options *o)
{
	struct pt_agent *a = calloc(1, sizeof(*a));
	struct pt_err err = { "" };
	int ret, status = -EIO;
	size_t i;

	if (!a) {
		pt_say(PT_SAY_ERROR, "out of memory");
		return -ENOMEM;
	}
	a->o = o;
	a->signals = a->kept.dir = a->page.pidfd = -1;
	for (i = 0; i < PT_SLOTS; i++)
		a->slot[i].child.pidfd = -1;
	ret = read_config(o, &a->c, &err);
	if (ret)
		status = -EINVAL;
	/* files are the agent's, not those of whoever called sudo; and what a
	 * sample leaves behind becomes a child of this process */
	if (!ret && (unsetenv("SUDO_UID") || block_signals(a) ||
		     prctl(PR_SET_CHILD_SUBREAPER, 1)))
		ret = pt_err_set(&err, -errno, "cannot start: %s", strerror(errno));
	a->budget = (struct pt_budget)PT_BUDGET_OPEN(a->c.cpu);
	a->start_ns = (uint64_t)(pt_agent_realtime() * 1e9);
	ret = ret ?: start(a, &err);
	if (ret) {
		pt_say(PT_SAY_ERROR, "%s", err.msg);
		goto out;
	}
	raise_limits();
	pt_agent_budget_begin(a);
	turn(a);
	ready(a);
	ret = serve_until_told(a);
	if (ret < 0)
		pt_say(PT_SAY_ERROR, "cannot continue: %s", strerror(-ret));
	else
		status = 0;
	stop(a);
out:
	release(a);
	free(a);
	return status;
}

int pt_agent_check(const struct pt_agent_options *o)
{
	struct pt_config *c = malloc(sizeof(*c));
	struct pt_err err = { "out of memory" };
	int ret = c ? read_config(o, c, &err) : -ENOMEM;

	if (ret)
		pt_say(PT_SAY_ERROR, "%s", err.msg);
	free(c);
	return ret ? -EINVAL : 0;
}
