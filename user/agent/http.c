/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread serves all connections, by epoll. libmicrohttpd times out whoever is
 * silent; whoever says a byte now and then, or reads one, is timed out here
 * (http_clients.c), and the thread takes no more than a share of one core whatever
 * comes in.
 */
#include "agent/http_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <netinet/in.h>

#include "base/readfile.h"
#include "version.h"

#define MEMORY (16 << 10)     /* of a connection: its request's head, and buffers */
#define BACKLOG 512	      /* not yet accepted */
#define SOCKET_BUFFER (256 << 10) /* what the kernel keeps of an answer, at most */
#define PEM_MAX (1 << 20)
/* Of one core, at most; told over windows of so many seconds. A scrape takes a
 * fraction of a millisecond. */
#define CPU_SHARE 0.2
#define CPU_WINDOW_S 0.25
#define LOOK_MS 500 /* for those whose time is over */

/* ---- what libmicrohttpd asks --------------------------------------------------- */

struct pt_http_client *pt_http_client_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return i ? i->socket_context : NULL;
}

static enum MHD_Result may_come(void *cls, const struct sockaddr *sa, socklen_t len)
{
	struct pt_http *h = cls;
	unsigned doomed = h->clients.doomed;
	uint64_t who[2];
	bool room;

	pt_http_who(sa, len, who);
	room = pt_http_clients_room(&h->clients, who);
	if (!room || h->clients.doomed > doomed)
		atomic_fetch_add(&h->refused, 1); /* this one, or another for it */
	return room ? MHD_YES : MHD_NO;
}

static void comes_or_goes(void *cls, struct MHD_Connection *c, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *i;
	struct pt_http *h = cls;
	uint64_t who[2];

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		pt_http_clients_remove(&h->clients, *context);
		*context = NULL;
	} else {
		/* libmicrohttpd 1.0 answers each question in the same place */
		i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
		if (!i || !i->client_addr)
			return;
		pt_http_who(i->client_addr, sizeof(struct sockaddr_storage), who);
		i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
		if (!i)
			return;
		*context = pt_http_clients_add(&h->clients, who, i->connect_fd, pt_now());
	}
	atomic_store(&h->connections, h->clients.n + h->clients.doomed);
}

/* Nothing that we serve needs escapes: a path with one is none of ours. */
static size_t no_escapes(void *cls, struct MHD_Connection *c, char *s)
{
	(void)cls;
	(void)c;
	return strlen(s);
}

/* ---- the thread ---------------------------------------------------------------- */

/* Waits for those who come, too, or for the end only. */
static bool woken(const struct pt_http *h, bool for_any, int ms)
{
	struct pollfd p[1 + PT_HTTP_DOORS] = { { h->wake, POLLIN, 0 } };
	nfds_t n = 1;
	size_t i;

	for (i = 0; for_any && i < PT_HTTP_DOORS; i++)
		if (h->daemon[i])
			p[n++] = (struct pollfd){
				MHD_get_daemon_info(h->daemon[i],
						    MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
				POLLIN, 0 };
	return poll(p, n, ms) > 0 && p[0].revents;
}

/* How long to wait, when `ms` is long enough for ourselves. */
static int until_next(const struct pt_http *h, int ms)
{
	MHD_UNSIGNED_LONG_LONG soon;
	size_t i;

	for (i = 0; i < PT_HTTP_DOORS; i++)
		if (h->daemon[i] && MHD_get_timeout(h->daemon[i], &soon) == MHD_YES &&
		    soon < (MHD_UNSIGNED_LONG_LONG)ms)
			ms = (int)soon;
	return ms;
}

static void *serve(void *arg)
{
	struct pt_http *h = arg;
	const clockid_t used = CLOCK_THREAD_CPUTIME_ID;
	size_t i;
	double window = pt_now(), cpu = pt_clock(used), look = 0, now;

	for (;;) {
		/* With nobody there, only for descriptors that lacked and are back. */
		int ms = h->clients.newest ? LOOK_MS : 20 * LOOK_MS;

		if (woken(h, true, until_next(h, ms)))
			break;
		for (i = 0; i < PT_HTTP_DOORS; i++)
			if (h->daemon[i])
				MHD_run(h->daemon[i]);
		now = pt_now();
		if (now >= look) {
			look = now + LOOK_MS / 1e3;
			atomic_fetch_add(&h->refused,
					 pt_http_clients_expire(&h->clients, now));
		}
		if (now >= window + CPU_WINDOW_S) {
			window = now;
			cpu = pt_clock(used);
		} else if (pt_clock(used) - cpu > CPU_SHARE * CPU_WINDOW_S) {
			ms = (int)((window + CPU_WINDOW_S - now) * 1e3) + 1;
			if (woken(h, false, ms))
				break;
		}
	}
	return NULL;
}

/* ---- start and stop ------------------------------------------------------------ */

static int listen_on(struct pt_http *h, const char *where, char *why, size_t n)
{
	struct sockaddr_storage sa;
	socklen_t len = 0;
	int one = 1, size = SOCKET_BUFFER, err;

	if (pt_http_address(where, &sa, &len)) {
		snprintf(why, n, "%s is no address: ADDR:PORT or [ADDR]:PORT, in digits",
			 where);
		return -EINVAL;
	}
	h->listen = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (h->listen < 0)
		goto err;
	setsockopt(h->listen, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* What is accepted has it from here. Without it the kernel would keep
	 * megabytes for whoever asks and does not read. */
	setsockopt(h->listen, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	size = MEMORY;
	setsockopt(h->listen, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	if (bind(h->listen, (struct sockaddr *)&sa, len) || listen(h->listen, BACKLOG) ||
	    getsockname(h->listen, (struct sockaddr *)&sa, &len))
		goto err;
	h->port = ntohs(sa.ss_family == AF_INET6 ?
				((struct sockaddr_in6 *)&sa)->sin6_port :
				((struct sockaddr_in *)&sa)->sin_port);
	return 0;
err:
	err = -errno;
	snprintf(why, n, "cannot listen on %s: %s", where, strerror(-err));
	return err;
}

static int read_pem(const char *path, char **text, char *why, size_t n)
{
	size_t len;
	int err = pt_read_file(path, PEM_MAX, text, &len);

	if (err)
		snprintf(why, n, "cannot read %s: %s", path, strerror(-err));
	return err;
}

static int read_files(struct pt_http *h, const struct pt_http_options *o, char *why,
		      size_t n)
{
	const char *token = o->token_file ? o->token_file : o->own_token;
	int err = 0;

	if (!o->cert != !o->key) {
		snprintf(why, n, "TLS needs a certificate and its key");
		return -EINVAL;
	}
	if (o->cert) {
#ifdef PT_STATIC
		snprintf(why, n, "this program was linked statically and serves no TLS");
		return -ENOTSUP;
#endif
		err = read_pem(o->cert, &h->cert, why, n);
		err = err ?: read_pem(o->key, &h->key, why, n);
	}
	h->open_metrics = !o->token_file;
	if (!err && token) {
		h->token.path = strdup(token);
		err = h->token.path ?
			      pt_http_token_look(&h->token, pt_now(), true) :
			      -ENOMEM;
		if (err)
			snprintf(why, n, "no token in %s: %s", token,
				 err == -EINVAL ? "one line of printable characters" :
						  strerror(-err));
	}
	if (!err && o->evidence) {
		h->evidence = open(o->evidence, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (h->evidence < 0) {
			err = -errno;
			snprintf(why, n, "cannot open the directory %s: %s", o->evidence,
				 strerror(-err));
		}
	}
	return err;
}

/* `fd` is the daemon's from now on, whatever is returned. */
static int start_daemon(struct pt_http *h, int door, int *fd, char *why, size_t n)
{
	bool with_tls = door == PT_HTTP_PORT && h->cert;
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, h->cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, h->key },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0,
		  (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2" },
		{ MHD_OPTION_END, 0, NULL },
	};

	h->daemon[door] = MHD_start_daemon(
		MHD_USE_EPOLL | (with_tls ? MHD_USE_TLS : 0), 0, may_come, h,
		pt_http_answer, h, MHD_OPTION_LISTEN_SOCKET, *fd,
		/* never reached: may_come() keeps below it */
		MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)(PT_HTTP_CONNECTIONS + PT_HTTP_DOOMED + 1),
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(PT_HTTP_IDLE_S + 5),
		MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
		MHD_OPTION_NOTIFY_CONNECTION, comes_or_goes, h,
		MHD_OPTION_NOTIFY_COMPLETED, pt_http_completed, h,
		MHD_OPTION_UNESCAPE_CALLBACK, no_escapes, NULL,
		with_tls ? MHD_OPTION_ARRAY : MHD_OPTION_END, tls, MHD_OPTION_END);
	*fd = -1; /* where it failed, it closed it */
	if (h->daemon[door])
		return 0;
	snprintf(why, n, "%s",
		 with_tls ? "the certificate or its key cannot be used" :
			    "the HTTP server does not start");
	return -EINVAL;
}

/* It takes no signal: those are for the thread that knows what to do. SIGPIPE comes
 * of sendfile() to somebody who has gone. */
static int start_thread(struct pt_http *h, char *why, size_t n)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&h->thread, NULL, serve, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	h->threaded = !err;
	if (err)
		snprintf(why, n, "cannot start a thread: %s", strerror(err));
	return -err;
}

int pt_http_start(const struct pt_http_options *o, struct pt_http **out, char *why,
		  size_t n)
{
	struct pt_http *h = calloc(1, sizeof(*h));
	int err;

	*out = NULL;
	*why = '\0';
	if (!h) {
		snprintf(why, n, "no memory");
		return -ENOMEM;
	}
	h->listen = h->evidence = h->wake = -1;
	h->local = (struct pt_http_local)PT_HTTP_LOCAL_NONE;
	pthread_mutex_init(&h->lock, NULL);
	err = read_files(h, o, why, n);
	if (!err && !o->listen && !o->local) {
		snprintf(why, n, "there is no address to listen on");
		err = -EINVAL;
	}
	if (o->listen)
		err = err ?: listen_on(h, o->listen, why, n);
	if (o->local && !err) {
		err = pt_http_local_open(&h->local, o->local, why, n);
		if (o->local_or_not)
			err = 0;
	}
	if (!err) {
		h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		err = h->wake < 0 ? -errno : pt_http_answers_make(h);
		if (err)
			snprintf(why, n, "the HTTP server does not start: %s",
				 strerror(-err));
	}
	if (o->listen)
		err = err ?: start_daemon(h, PT_HTTP_PORT, &h->listen, why, n);
	if (h->local.fd >= 0)
		err = err ?: start_daemon(h, PT_HTTP_LOCAL, &h->local.fd, why, n);
	err = err ?: start_thread(h, why, n);
	if (err) {
		pt_http_stop(h);
		return err;
	}
	*out = h;
	return 0;
}

static void free_secret(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

void pt_http_stop(struct pt_http *h)
{
	uint64_t one = 1;
	size_t i;

	if (!h)
		return;
	if (h->threaded && write(h->wake, &one, sizeof(one)) == sizeof(one))
		pthread_join(h->thread, NULL);
	for (i = 0; i < PT_HTTP_DOORS; i++)
		if (h->daemon[i])
			MHD_stop_daemon(h->daemon[i]);
	pt_http_local_close(&h->local);
	for (i = 0; i < PT_PAGE_NR; i++)
		pt_http_text_unref(h->page[i]);
	pt_http_answers_free(h);
	if (h->listen >= 0)
		close(h->listen);
	if (h->wake >= 0)
		close(h->wake);
	if (h->evidence >= 0)
		close(h->evidence);
	pthread_mutex_destroy(&h->lock);
	free(h->cert);
	free_secret(h->key);
	free(h->token.path);
	explicit_bzero(h->token.text, sizeof(h->token.text));
	free(h);
}

/* ---- what the agent calls ------------------------------------------------------ */

int pt_http_publish(struct pt_http *h, enum pt_http_page page, char *text, size_t len)
{
	struct pt_http_text *t, *old;

	if (!text || (unsigned)page >= PT_PAGE_NR ||
	    !(t = calloc(1, sizeof(*t)))) {
		free(text);
		return -ENOMEM;
	}
	atomic_init(&t->refs, 1);
	t->text = text;
	t->len = len;
	pthread_mutex_lock(&h->lock);
	old = h->page[page];
	h->page[page] = t;
	pthread_mutex_unlock(&h->lock);
	pt_http_text_unref(old);
	return 0;
}

unsigned pt_http_port(const struct pt_http *h)
{
	return h->port;
}

void pt_http_stats(struct pt_http *h, struct pt_http_stats *s)
{
	s->requests = atomic_load(&h->requests);
	s->refused = atomic_load(&h->refused);
	s->connections = atomic_load(&h->connections);
}
