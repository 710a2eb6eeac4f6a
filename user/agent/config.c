// SPDX-License-Identifier: BSD-2-Clause
#include "agent/config.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/series.h"
#include "base/parse.h"
#include "base/str.h"
#include "base/when.h"

enum kind { SECONDS, BOOL, COUNT, CORES, SIZE, TEXT, PATH, PATH_OR_NO, MODE,
	    CONDITIONS };

struct key {
	const char *section, *name;
	enum kind kind;
	size_t at, cap; /* where in struct pt_config; of a text: its bytes */
	double low, high;
};

#define AT(field) offsetof(struct pt_config, field)
#define TEXT_AT(field) AT(field), sizeof(((struct pt_config *)0)->field), 0, 0

#define MIB 1048576.0
#define DAY 86400.0

static const struct key keys[] = {
	{ "agent", "interval", SECONDS, AT(interval_s), 0, 2, DAY },
	{ "agent", "sample", SECONDS, AT(sample_s), 0, 0.5, 600 },
	{ "agent", "discover", SECONDS, AT(discover_s), 0, 1, 3600 },
	{ "agent", "expire", SECONDS, AT(expire_s), 0, 0, DAY },
	{ "agent", "aligned", BOOL, AT(aligned), 0, 0, 0 },
	{ "agent", "gpu-jobs", BOOL, AT(gpu_jobs), 0, 0, 0 },
	{ "agent", "adopt", BOOL, AT(adopt), 0, 0, 0 },
	{ "agent", "at-once", COUNT, AT(at_once), 0, 1, 16 },
	{ "agent", "max-jobs", COUNT, AT(max_jobs), 0, 1, 1024 },
	{ "agent", "mode", MODE, AT(mode), 0, 0, 0 },
	{ "agent", "state", PATH, TEXT_AT(state) },
	{ "agent", "logs", PATH, TEXT_AT(logs) },
	{ "agent", "node", TEXT, TEXT_AT(node) },
	{ "budget", "cpu", CORES, AT(cpu), 0, 0.01, 100 },
	{ "budget", "memory", SIZE, AT(memory), 0, 16 * MIB, 1048576 * MIB },
	{ "evidence", "keep", BOOL, AT(evidence), 0, 0, 0 },
	{ "evidence", "dir", PATH, TEXT_AT(evidence_dir) },
	{ "evidence", "size", SIZE, AT(evidence_size), 0, MIB, 1048576 * MIB },
	{ "evidence", "sample-size", SIZE, AT(sample_size), 0, MIB / 16,
	  1024 * MIB },
	{ "evidence", "age", SECONDS, AT(evidence_age_s), 0, 60, 3650 * DAY },
	{ "watch", "when", CONDITIONS, TEXT_AT(watch) },
	{ "watch", "jobs", COUNT, AT(watch_jobs), 0, 1, 16 },
	{ "watch", "keep", SECONDS, AT(watch_keep_s), 0, 2, 600 },
	{ "watch", "cooldown", SECONDS, AT(watch_cooldown_s), 0, 0, DAY },
	{ "watch", "memory", SIZE, AT(watch_memory), 0, 8 * MIB, 4096 * MIB },
	{ "http", "listen", TEXT, TEXT_AT(listen) },
	{ "http", "cert", PATH, TEXT_AT(cert) },
	{ "http", "key", PATH, TEXT_AT(key) },
	{ "http", "token-file", PATH, TEXT_AT(token_file) },
	{ "http", "socket", PATH_OR_NO, TEXT_AT(socket) },
	{ "otlp", "endpoint", TEXT, TEXT_AT(endpoint) },
	{ "otlp", "headers-file", PATH, TEXT_AT(headers_file) },
	{ "otlp", "ca", PATH, TEXT_AT(otlp_ca) },
	{ "otlp", "cert", PATH, TEXT_AT(otlp_cert) },
	{ "otlp", "key", PATH, TEXT_AT(otlp_key) },
	{ "otlp", "queue", SIZE, AT(otlp_queue), 0, MIB / 16, 1024 * MIB },
	{ "otlp", "interval", SECONDS, AT(otlp_interval_s), 0, 1, 3600 },
};

void pt_config_default(struct pt_config *c)
{
	memset(c, 0, sizeof(*c));
	c->interval_s = 60;
	c->sample_s = 5;
	c->discover_s = 10;
	c->expire_s = 300;
	c->gpu_jobs = c->adopt = true;
	c->at_once = 2;
	c->max_jobs = 256;
	c->mode = PT_MODE_STANDARD;
	c->cpu = 0.05;
	c->memory = 512 << 20;
	c->evidence = true;
	c->evidence_size = 1 << 30;
	c->sample_size = 64 << 20;
	c->evidence_age_s = 7 * DAY;
	c->watch_jobs = 2;
	c->watch_keep_s = 30;
	c->watch_cooldown_s = 300;
	c->watch_memory = 64 << 20;
	c->otlp_queue = 4 << 20;
	c->otlp_interval_s = 60;
	snprintf(c->state, sizeof(c->state), "/var/lib/pipetrace");
	snprintf(c->logs, sizeof(c->logs), "/var/log");
	snprintf(c->listen, sizeof(c->listen), "127.0.0.1:9753");
}

struct parse {
	struct pt_config *c;
	const char *name, *text;
	struct pt_err *err;
	int line, ret;
	bool seen[sizeof(keys) / sizeof(*keys)];
};

/* Once: the first error is the one that is told. Returns 0, inih's "wrong". */
static int wrong(struct parse *p, const char *what, const char *detail)
{
	char safe[160];

	if (p->ret)
		return 0;
	pt_str_term(safe, sizeof(safe), detail, 0, 60);
	p->ret = pt_err_set(p->err, -EINVAL, "%s:%d: %s%s%s%s", p->name, p->line,
			    what, *safe ? " \"" : "", safe, *safe ? "\"" : "");
	return 0;
}

static int out_of_range(struct parse *p, const char *what, double low, double high)
{
	char text[128];

	snprintf(text, sizeof(text), "%s takes a value from %g to %g", what, low,
		 high);
	return wrong(p, text, "");
}

/* "90", "500ms", "5m", "12h", and "7d", which the command line does not know. */
static int parse_time(const char *text, double *out)
{
	size_t n = strlen(text);
	uint64_t ns;
	char *end;

	if (n > 1 && text[n - 1] == 'd' && strchr("0123456789", text[0])) {
		*out = strtod(text, &end) * DAY;
		return *end == 'd' && !end[1] ? 0 : -EINVAL;
	}
	if (pt_parse_span(text, &ns))
		return -EINVAL;
	*out = (double)ns / 1e9;
	return 0;
}

static int parse_bool(const char *text, bool *out)
{
	*out = !strcmp(text, "yes") || !strcmp(text, "true");
	return *out || !strcmp(text, "no") || !strcmp(text, "false") ? 0 :
								       -EINVAL;
}

static bool printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return true;
}

static int take_text(struct parse *p, char *dst, size_t cap, const char *value)
{
	if (!printable(value))
		return wrong(p, "a value has control characters", "");
	if (strlen(value) >= cap)
		return wrong(p, "this value is too long:", value);
	memcpy(dst, value, strlen(value) + 1);
	return 1;
}

/* "$NAME" is a variable of the agent's environment, as Kubernetes' downward API
 * sets them. */
static const char *variable(const char *value)
{
	const char *v = value[0] == '$' ? getenv(value + 1) : value;

	return v ? v : "";
}

static int take_number(struct parse *p, const struct key *k, char *at,
		       const char *value)
{
	uint64_t bytes;
	int64_t count;
	double x = NAN;
	char *end;

	switch (k->kind) {
	case SECONDS:
		if (parse_time(value, &x))
			return wrong(p, "takes a time like 60s, 5m or 7d, not",
				     value);
		*(double *)at = x;
		break;
	case CORES: /* percent of one core */
		x = strtod(value, &end);
		if (end == value || (*end && strcmp(end, "%")))
			return wrong(p, "takes percent of one core, not", value);
		*(double *)at = x / 100;
		break;
	case COUNT:
		if (pt_parse_int(value, 0, 1 << 20, &count))
			return wrong(p, "takes a whole number, not", value);
		x = (double)count;
		*(unsigned *)at = (unsigned)count;
		break;
	default:
		if (pt_parse_size(value, &bytes))
			return wrong(p, "takes a size like 64M or 2G, not", value);
		x = (double)bytes;
		*(uint64_t *)at = bytes;
	}
	if (!(x >= k->low && x <= k->high))
		return out_of_range(p, k->name, k->low, k->high);
	return 1;
}

/* "step > 3x median, worker silent > 1m" */
static int take_conditions(struct parse *p, char *dst, size_t cap, const char *value)
{
	char text[PT_CONFIG_TEXT], *save, *one;
	struct pt_when w;
	unsigned n = 0;

	if (!take_text(p, dst, cap, value))
		return 0;
	strcpy(text, dst);
	for (one = strtok_r(text, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
		if (pt_parse_when(one, &w))
			return wrong(p, "takes conditions like " PT_WHEN_FORMS ", not", one);
		if (++n > PT_WHEN_MAX)
			return wrong(p, "there are more conditions than 8, at", one);
	}
	return 1;
}

static int take_key(struct parse *p, const struct key *k, const char *value)
{
	char *at = (char *)p->c + k->at;

	if (p->seen[k - keys])
		return wrong(p, "this key is here twice:", k->name);
	p->seen[k - keys] = true;
	switch (k->kind) {
	case BOOL:
		return parse_bool(value, (bool *)at) ?
			       wrong(p, "takes yes or no, not", value) : 1;
	case MODE:
		return pt_mode_parse(value, (enum pt_mode *)at) ?
			       wrong(p, "takes light, standard or full, not",
				     value) : 1;
	case PATH:
	case PATH_OR_NO:
		if (*value && *value != '/' &&
		    (k->kind == PATH || strcmp(value, "no") != 0))
			return wrong(p, "takes a path from the root, not", value);
		return take_text(p, at, k->cap, value);
	case CONDITIONS:
		return take_conditions(p, at, k->cap, value);
	case TEXT:
		return take_text(p, at, k->cap, variable(value));
	default:
		return take_number(p, k, at, value);
	}
}

static bool label_name(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz"
			     "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

	/* a name with two underscores before it is Prometheus' own */
	return n && !s[n] && n < sizeof(((struct pt_prom_label *)0)->name) &&
	       !(s[0] >= '0' && s[0] <= '9') && strncmp(s, "__", 2) != 0;
}

static int take_label(struct parse *p, const char *name, const char *value)
{
	struct pt_config *c = p->c;
	size_t i;

	if (!label_name(name))
		return wrong(p, "this is not a valid label name:", name);
	if (pt_series_owns(name))
		return wrong(p, "pipetrace itself has a label of this name:", name);
	if (c->n_labels == PT_PROM_FREE)
		return wrong(p, "there are more labels than 8, at", name);
	for (i = 0; i < c->n_labels; i++)
		if (!strcmp(c->labels[i].name, name))
			return wrong(p, "this label is here twice:", name);
	value = variable(value);
	snprintf(c->labels[i].name, sizeof(c->labels[i].name), "%s", name);
	if (!take_text(p, c->labels[i].value, sizeof(c->labels[i].value), value))
		return 0;
	c->n_labels++;
	return 1;
}

static int take_rule(struct parse *p, const char *name, const char *key,
		     const char *value)
{
	struct pt_config *c = p->c;
	struct pt_job_rule *r;
	size_t i;

	for (i = 0; i < c->n_rules && strcmp(c->rules[i].name, name); i++)
		;
	if (i == PT_CONFIG_RULES)
		return wrong(p, "there are more than 64 [job] sections, at", name);
	r = &c->rules[i];
	if (i == c->n_rules) {
		if (!*name || strlen(name) >= sizeof(r->name))
			return wrong(p, "a [job NAME] needs a short name, not",
				     name);
		snprintf(r->name, sizeof(r->name), "%s", name);
		c->n_rules++;
	}
	if (!strcmp(key, "comm"))
		return take_text(p, r->comm, sizeof(r->comm), value);
	if (!strcmp(key, "cmdline"))
		return take_text(p, r->cmdline, sizeof(r->cmdline), value);
	if (!strcmp(key, "user"))
		return take_text(p, r->user, sizeof(r->user), value);
	if (!strcmp(key, "cgroup"))
		return take_text(p, r->cgroup, sizeof(r->cgroup), value);
	if (!strcmp(key, "exclude"))
		return parse_bool(value, &r->exclude) ?
			       wrong(p, "takes yes or no, not", value) : 1;
	return wrong(p, "[job] has comm, cmdline, user, cgroup and exclude, not",
		     key);
}

static int on_pair(void *ctx, const char *section, const char *name,
		   const char *value)
{
	struct parse *p = ctx;
	bool known = false;
	size_t i;

	if (p->ret)
		return 0;
	if (!value)
		value = "";
	if (!strcmp(section, "labels"))
		return take_label(p, name, value);
	if (!strncmp(section, "job ", 4))
		return take_rule(p, section + 4, name, value);
	for (i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		bool here = !strcmp(keys[i].section, section);

		known |= here;
		if (here && !strcmp(keys[i].name, name))
			return take_key(p, &keys[i], value);
	}
	return known ? wrong(p, "this section has no key", name) :
		       wrong(p, "there is no section", section);
}

/* Feeds inih line by line, and so knows which line a pair is from. */
static char *next_line(char *out, int size, void *ctx)
{
	struct parse *p = ctx;
	size_t n = strcspn(p->text, "\n");

	if (!*p->text || p->ret)
		return NULL;
	p->line++;
	if (n + 2 > (size_t)size) {
		wrong(p, "this line is too long", "");
		return NULL;
	}
	memcpy(out, p->text, n);
	out[n] = '\n';
	out[n + 1] = '\0';
	p->text += p->text[n] ? n + 1 : n;
	return out;
}

/* What a key alone cannot tell. */
static int check(struct parse *p)
{
	struct pt_config *c = p->c;
	const char *bad = NULL;
	size_t i;

	if (c->sample_s > c->interval_s / 2)
		bad = "sample is more than half of interval";
	else if (!*c->cert != !*c->key)
		bad = "[http] cert and key go together";
	else if (!*c->otlp_cert != !*c->otlp_key)
		bad = "[otlp] cert and key go together";
	else if (*c->endpoint && strncmp(c->endpoint, "http://", 7) &&
		 strncmp(c->endpoint, "https://", 8))
		bad = "[otlp] endpoint begins with http:// or https://";
	else if (*c->watch && !c->evidence)
		bad = "[watch] keeps its windows as evidence: [evidence] keep = no does not go "
		      "with it";
	else if (!*c->state)
		bad = "[agent] state names no folder";
	for (i = 0; i < c->n_rules && !bad; i++)
		if (!*c->rules[i].comm && !*c->rules[i].cmdline &&
		    !*c->rules[i].user && !*c->rules[i].cgroup)
			bad = "a [job] section has no pattern";
	if (!bad)
		return 0;
	return pt_err_set(p->err, -EINVAL, "%s: %s", p->name, bad);
}

int pt_config_parse(const char *text, const char *name, struct pt_config *c,
		    struct pt_err *err)
{
	struct parse p = { .c = c, .name = name, .text = text, .err = err };
	int line;

	pt_config_default(c);
	line = ini_parse_stream(next_line, &p, on_pair, &p);
	/* inih's first bad line may be before the one that we did not like */
	if (line > 0 && (!p.ret || line < p.line)) {
		p.ret = 0;
		p.line = line;
		wrong(&p, "this is neither [section] nor key = value", "");
	}
	return p.ret ? p.ret : check(&p);
}

/* Who may change what root runs by? Root alone, or who started the agent. */
static int trusted(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	if (geteuid())
		return 0;
	return st->st_uid || (st->st_mode & 022) ? -EPERM : 0;
}

int pt_config_read(const char *path, struct pt_config *c, struct pt_err *err)
{
	struct stat st;
	char *text = NULL;
	ssize_t n;
	int fd, ret = 0;

	/* a pipe would keep us waiting */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st)) {
		ret = pt_err_set(err, -errno, "cannot read %s: %s", path,
				 strerror(errno));
		goto out;
	}
	ret = trusted(&st);
	if (ret) {
		pt_err_set(err, ret, ret == -EPERM ?
			   "%s must belong to root, and only root may write "
			   "it" : "%s is not a regular file", path);
		goto out;
	}
	text = calloc(1, PT_CONFIG_BYTES + 1);
	n = text ? read(fd, text, PT_CONFIG_BYTES) : -1;
	if (n < 0)
		ret = pt_err_set(err, -EIO, "cannot read %s", path);
	else if (n == PT_CONFIG_BYTES || strlen(text) != (size_t)n)
		ret = pt_err_set(err, -EINVAL, "%s is not a configuration file", path);
	else
		ret = pt_config_parse(text, path, c, err);
out:
	free(text);
	if (fd >= 0)
		close(fd);
	return ret;
}
