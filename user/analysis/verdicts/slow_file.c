/* SPDX-License-Identifier: BSD-2-Clause */
/* One file that takes a second and more, or several times what files of its size
 * take, time and again. */
#include <math.h>

#include "analysis/io/disks.h"
#include "analysis/verdicts/verdict.h"

enum kind { UNKNOWN, LARGE, SLOW };

/* Large: what it takes is what so many bytes of other files take. */
static enum kind kind_of(const struct pt_item *i)
{
	if (i->ms < PT_SLOW_FILE_FACTOR * i->peers_ms)
		return LARGE;
	return i->slower >= PT_SLOW_FILE_FACTOR ? SLOW : UNKNOWN;
}

static void add_evidence(const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_item *i = &f->item;

	pt_evidence_against(v, "item_ms.max", i->ms, "ms", f->th->slow_item_ms);
	pt_evidence_against(v, "item_ms.p50", i->median_ms, "ms", f->th->item_ms);
	pt_evidence_against(v, "data_wait.slow_files_share", i->slow_share, "share",
			    f->th->slow_share);
	if (i->waits)
		pt_evidence(v, "file.waits", (double)i->waits, "count");
	if (isfinite(i->bytes))
		pt_evidence(v, "file.bytes", i->bytes, "bytes");
	if (i->waits)
		pt_evidence_against(v, "file.ms.p50", i->usual_ms, "ms", f->th->item_ms);
	if (isfinite(i->slower)) {
		pt_evidence_add(v, "file.peers_ms.p50", i->peers_ms, "ms", NAN,
				PT_ESTIMATED);
		pt_evidence(v, "file.peers", (double)i->peers, "count");
		pt_evidence_add(v, "file.slower", i->slower, "ratio", PT_SLOW_FILE_FACTOR,
				PT_ESTIMATED);
	}
	if (isfinite(i->chance))
		pt_evidence_against(v, "file.slower_chance", i->chance, "share",
				    f->th->slow_chance);
}

/* " on vda (ext4)", as far as it is known. */
static const char *where(struct pt_an *an, const struct pt_file *f, uint32_t dev)
{
	struct pt_r_file o = { .dev = dev };

	pt_file_place(an, f, &o);
	if (o.device && o.fs)
		return pt_sentence(an, " on %s (%s)", o.device, o.fs);
	return o.device || o.fs ? pt_sentence(an, " on %s",
						  o.device ? o.device : o.fs) : "";
}

static const char *title(struct pt_an *an, const struct pt_item *i, enum kind kind,
			 const char *at)
{
	double share = 100 * i->slow_share, mib = i->bytes / (1 << 20);

	if (i->repeated)
		return pt_sentence(an,
			"One file%s is slow every time: %.1f ms per visit (%zu of them) where "
			"files of its size take %.1f ms; it accounts for %.0f %% of the data "
			"wait.",
			at, i->usual_ms, i->waits, i->peers_ms, share);
	if (kind == LARGE)
		return pt_sentence(an,
			"One file%s took %.1f s to read because it is large (%.1f MiB, at the "
			"speed of the others); files like it account for %.0f %% of the data "
			"wait.",
			at, i->ms / 1000, mib, share);
	if (kind == SLOW)
		return pt_sentence(an,
			"One file%s took %.1f s to read; the same amount of other files takes "
			"%.1f ms. Files like it account for %.0f %% of the data wait.",
			at, i->ms / 1000, i->peers_ms, share);
	return pt_sentence(an,
		"One file%s took %.1f s to read%s; files like it account for %.0f %% of the "
		"data wait.",
		at, i->ms / 1000, isnan(i->median_ms) ? "" :
		pt_sentence(an, " (%.1f ms is typical)", i->median_ms),
		share);
}

static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_item *i = &f->item;
	double lost = i->slow_share * f->wait_share;
	enum kind kind = kind_of(i);
	const struct pt_file *file;

	if (!i->repeated && (!i->thread || i->ms < f->th->slow_item_ms))
		return 0;
	add_evidence(f, v);
	pt_verdict_costs(f, v, lost);
	v->severity = lost >= f->th->starved_info ? PT_WARNING : PT_INFO;
	if (f->is_starved && i->slow_share >= f->th->slow_share)
		v->severity = f->severity;
	v->certainty = PT_CONF_HIGH;
	v->subject_pid = i->thread ? i->thread->tgid : PT_NULL;
	file = pt_model_file(an->m, i->dev, i->inode);
	if (file && file->path)
		v->subject_file = pt_arena_strdup(an->a, file->path);
	v->kind = kind == LARGE ? "large" : kind == SLOW ? "slow" : NULL;
	v->title = title(an, i, kind, where(an, file, i->dev));
	v->advice = kind == LARGE ?
		"Split this file into pieces the size of the others, or leave it out: it is "
		"read no slower than they are, but one batch waits for all of it." :
		"Check this file: its size, its location (another disk, a network mount, a "
		"damaged sector), and what else reads it.";
	return 1;
}

static int judge_root(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	return f->item.slow_share >= f->th->slow_share ? judge(an, f, v) : 0;
}

const struct pt_verdict pt_verdict_slow_file = {
	.asked = { { PT_V_WHERE, judge_root }, { PT_V_BESIDE, judge } }
};
