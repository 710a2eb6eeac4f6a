// SPDX-License-Identifier: BSD-2-Clause
#include "view/top/pane.h"

void pt_top_help(struct pt_tx *t)
{
	static const struct {
		const char *key, *what;
	} keys[] = {
		{ "1 ... 6", "choose a pane; so do Tab, Left and Right" },
		{ "Up, Down", "scroll; in Jobs: choose a job" },
		{ "PgUp, PgDn", "scroll by a screen; Home, End: to the ends" },
		{ "Enter", "in Jobs: trace the chosen job" },
		{ "s, S", "sort by the next, the last column" },
		{ "r", "sort the other way round" },
		{ "p, Space", "pause; the trace goes on, the picture stays" },
		{ "Esc", "leave the job: nothing is traced any more" },
		{ "?, h", "this help; any key closes it" },
		{ "q, Ctrl-C", "quit; the job runs on" },
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		pt_tx_put(t, "  ");
		pt_tx_cell(t, keys[i].key, 14, false);
		pt_tx_printf(t, "%s\n", keys[i].what);
	}
	pt_tx_put(t, "\n");
	pt_tx_wrap(t, 0, "Everything shown is of the last seconds alone (the "
		   "window, in the first line), diagnosed anew each time as "
		   "`pipetrace report` would. A short window sees rare things "
		   "rarely: `pipetrace -p PID` looks longer.");
	pt_tx_wrap(t, 0, "busy 40 % (35 % to 45 %): the best guess, and the "
		   "bounds that are certain. A dash is what is not known. own "
		   "CPU: of this program, in shares of one core.");
}
