/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/verdicts.h"

#include <string.h>

static const struct about {
	const char *id;
	unsigned flags;
	const char *limits;
} list[] = {
#define PT_VERDICT(id, flags, limits) { #id, flags, limits },
#include "report/verdicts.def"
};

static const struct words {
	const char *metric, *words;
} evidence[] = {
#define PT_EVIDENCE(metric, words) { metric, words },
#include "report/evidence.def"
};

const char *pt_evidence_words(const char *metric)
{
	for (size_t i = 0; metric && i < sizeof(evidence) / sizeof(evidence[0]); i++)
		if (!strcmp(evidence[i].metric, metric))
			return evidence[i].words;
	return NULL;
}

/* Limits that matter to no verdict; those of the list do to theirs, all others to all. */
static const char aside[] =
	"nvtx phases data_wait.lead kernel.names operations.gpu_s whatif";

static const struct about *find(const char *id)
{
	for (size_t i = 0; id && i < PT_VERDICT_NR; i++)
		if (!strcmp(list[i].id, id))
			return &list[i];
	return NULL;
}

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);
	const char *at;

	for (at = words; n && (at = strstr(at, word)); at += n)
		if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
			return true;
	return false;
}

bool pt_verdict_is(const char *id, unsigned flag)
{
	const struct about *v = find(id);

	return v && (v->flags & flag);
}

bool pt_verdicts_rest_on(const struct pt_report *r, const char *limit)
{
	for (size_t i = 0; i < r->n_verdicts; i++) {
		const struct about *v = find(r->verdicts[i].id);

		if (v && has_word(v->limits, limit))
			return true;
	}
	return false;
}

bool pt_limit_matters(const struct pt_report *r, const char *limit)
{
	bool listed;
	size_t i;

	if (!r->n_verdicts || !limit || pt_verdicts_rest_on(r, limit))
		return true;
	for (i = 0; i < r->n_verdicts; i++)
		if (pt_verdict_is(r->verdicts[i].id, PT_VERDICT_OPEN))
			return true;
	listed = has_word(aside, limit);
	for (i = 0; i < PT_VERDICT_NR && !listed; i++)
		listed = has_word(list[i].limits, limit);
	return !listed;
}
