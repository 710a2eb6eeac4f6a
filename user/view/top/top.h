/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The live view: what is on the screen, drawn from a report, and what a key
 * changes. It knows neither terminal nor capture: a screen is text, lines with
 * the colours of the text report (view/text/fmt.h).
 */
#ifndef PT_TOP_H
#define PT_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "report/report.h"

enum pt_top_pane {
	PT_TOP_OVERVIEW = 0,
	PT_TOP_VERDICTS,
	PT_TOP_WORKERS,
	PT_TOP_FILES,
	PT_TOP_OPERATIONS,
	PT_TOP_JOBS,
	PT_TOP_PANES
};

struct pt_top_job { /* strings as they come from outside */
	pid_t pid;
	char user[64], lib[64], devices[24], rank[16], cmd[256];
};

#define PT_TOP_HISTORY 240

struct pt_top {
	bool unicode, color;
	const struct pt_report *report; /* of the last window; NULL: none yet */
	const struct pt_top_job *jobs;
	size_t n_jobs;
	bool jobs_hidden; /* some could not be looked at */
	pid_t traced;	  /* 0: no job is traced */
	bool ended;	  /* ... and it has ended: the last picture stays */
	bool paused, help;
	double window_s;  /* that the report covers; NAN */
	double own_cpu;	  /* of this program, cores; NAN unknown */
	double interval_s;
	char status[256]; /* one line, as it comes from outside; or "" */
	/* data-wait shares of past windows, oldest first; NAN unknown */
	double history[PT_TOP_HISTORY];
	size_t n_history;

	enum pt_top_pane pane;
	struct {
		size_t sort;	/* which of the pane's keys */
		bool reverse;
		size_t top;	/* first line shown, of those that scroll */
		size_t chosen;	/* PT_TOP_JOBS: the job */
	} p[PT_TOP_PANES];
};

/* Ready to draw, nothing known. */
void pt_top_init(struct pt_top *v, bool unicode, bool color);
void pt_top_note_share(struct pt_top *v, double data_wait_share);

/* Keys that are no characters; all above what a byte can be. */
enum pt_top_key {
	PT_KEY_UP = 0x1000,
	PT_KEY_DOWN,
	PT_KEY_LEFT,
	PT_KEY_RIGHT,
	PT_KEY_PAGE_UP,
	PT_KEY_PAGE_DOWN,
	PT_KEY_HOME,
	PT_KEY_END,
	PT_KEY_BACK_TAB,
};
#define PT_KEY_ENTER '\n'
#define PT_KEY_ESC 27

enum pt_top_act {
	PT_TOP_NOTHING = 0,
	PT_TOP_DRAW,  /* the picture has changed */
	PT_TOP_QUIT,
	PT_TOP_TRACE, /* trace jobs[p[PT_TOP_JOBS].chosen] instead */
	PT_TOP_LEAVE, /* no longer trace the job */
};
/* A key on a screen of `rows` lines. */
enum pt_top_act pt_top_key(struct pt_top *v, int key, int rows);

/*
 * The screen: `rows` lines, each ended by '\n', none wider than `cols` when
 * both are at least 1. rows 0: as many lines as there are, without tabs and
 * keys, for output that is no terminal. The caller frees it. NULL: no memory.
 */
char *pt_top_draw(struct pt_top *v, int cols, int rows);

#endif
