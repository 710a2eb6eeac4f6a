/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent's configuration: an INI file. Every key is checked; one that nobody
 * knows is an error, so that a slip of the pen is not a silent default.
 */
#ifndef PT_AGENT_CONFIG_H
#define PT_AGENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/prom.h"
#include "capture/capture.h"

#define PT_CONFIG_TEXT 512 /* bytes of a value, with its end */
#define PT_CONFIG_RULES 64
#define PT_CONFIG_BYTES (256 * 1024) /* of the file */

/* Which processes are jobs though they use no GPU library, or are none though
 * they do. All patterns that are given must match. "": not given. */
struct pt_job_rule {
	char name[64];
	char comm[64], cmdline[PT_CONFIG_TEXT], user[64], cgroup[PT_CONFIG_TEXT];
	bool exclude;
};

struct pt_config {
	/* [agent] */
	double interval_s, sample_s, discover_s, expire_s;
	bool aligned, gpu_jobs;
	bool adopt; /* who supplies a job from outside is followed in its samples */
	unsigned at_once, max_jobs;
	enum pt_mode mode;
	char state[PT_CONFIG_TEXT]; /* folder of samples and evidence */
	char logs[PT_CONFIG_TEXT];  /* the host's /var/log */
	char node[256];		    /* its name; "": the host's */
	/* [budget] */
	double cpu;	 /* cores, on average */
	uint64_t memory; /* bytes, of the agent and a sample together */
	/* [evidence] */
	bool evidence;
	char evidence_dir[PT_CONFIG_TEXT]; /* "": state/evidence */
	uint64_t evidence_size, sample_size;
	double evidence_age_s;
	/* [watch]; conditions with commas between them, "": no job is watched */
	char watch[PT_CONFIG_TEXT];
	unsigned watch_jobs;
	double watch_keep_s, watch_cooldown_s;
	uint64_t watch_memory; /* of each, for records */
	/* [http]; "" not given */
	char listen[128], cert[PT_CONFIG_TEXT], key[PT_CONFIG_TEXT];
	char token_file[PT_CONFIG_TEXT];
	char socket[PT_CONFIG_TEXT]; /* "": state/socket; "no": none */
	/* [otlp] */
	char endpoint[PT_CONFIG_TEXT], headers_file[PT_CONFIG_TEXT];
	char otlp_ca[PT_CONFIG_TEXT], otlp_cert[PT_CONFIG_TEXT];
	char otlp_key[PT_CONFIG_TEXT];
	uint64_t otlp_queue;
	double otlp_interval_s;
	/* [labels] */
	struct pt_prom_label labels[PT_PROM_FREE];
	size_t n_labels;
	/* [job NAME], in their order */
	struct pt_job_rule rules[PT_CONFIG_RULES];
	size_t n_rules;
};

void pt_config_default(struct pt_config *c);

/*
 * Reads `text`, of the file that messages call `name`. 0, or -EINVAL with a
 * sentence that names the line.
 */
int pt_config_parse(const char *text, const char *name, struct pt_config *c,
		    struct pt_err *err);

/* The same for a file. Root takes none that others could write: -EPERM. */
int pt_config_read(const char *path, struct pt_config *c, struct pt_err *err);

#endif
