// SPDX-License-Identifier: BSD-2-Clause
/*
 * One SQLite database: the tables of tables.h, and views that answer the
 * questions of docs/export.md.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"
#include "view/tables/tables.h"

#define APPLICATION_ID 0x50545243 /* "PTRC", for file(1) */
#define SCHEMA 1 /* docs/export.md; in user_version */

static const char views[] =
	/* how long does a step take? */
	"CREATE VIEW step_times AS SELECT count(*) AS whole_steps,"
	" avg(period_ms) AS mean_ms, min(period_ms) AS min_ms,"
	" max(period_ms) AS max_ms FROM steps WHERE whole;"
	/* what share of the time does the trainer wait for data? */
	"CREATE VIEW data_wait AS SELECT trainer_pid,"
	" sum(end_ns - begin_ns) / 1e9 AS seconds,"
	" sum(end_ns - begin_ns) / 1e9 / (SELECT duration_s FROM capture)"
	" AS share FROM waits GROUP BY trainer_pid;"
	/* why? */
	"CREATE VIEW wait_causes AS SELECT cause, sum(seconds) AS seconds,"
	" sum(share) AS share FROM causes GROUP BY cause ORDER BY 2 DESC;"
	/* which workers delivered what was waited for? */
	"CREATE VIEW delivered AS SELECT w.worker_pid, k.state, k.slowdown,"
	" count(*) AS waits, sum(w.end_ns - w.begin_ns) / 1e9 AS waited_s"
	" FROM waits w LEFT JOIN workers k"
	" ON k.pid = w.worker_pid AND k.role = 'loader'"
	" GROUP BY w.worker_pid ORDER BY 5 DESC;"
	/* which calls of the GPU libraries take the time? */
	"CREATE VIEW calls AS SELECT name, count(*) AS calls,"
	" sum(CASE WHEN begun_before THEN NULL ELSE end_ns - begin_ns END)"
	" / 1e9 AS seconds FROM gpu_calls GROUP BY name ORDER BY 3 DESC;"
	/* where do threads wait? */
	"CREATE VIEW off_cpu_by_state AS SELECT pid, tid, state,"
	" count(*) AS times, sum(ready_ns - begin_ns) / 1e9 AS blocked_s,"
	" sum(end_ns - ready_ns) / 1e9 AS run_queue_s"
	" FROM off_cpu GROUP BY pid, tid, state ORDER BY 5 DESC;"
	"CREATE INDEX off_cpu_tid ON off_cpu (tid, begin_ns);"
	"CREATE INDEX gpu_calls_tid ON gpu_calls (tid, begin_ns);";

struct db {
	struct pt_rows rows;
	sqlite3 *db;
	sqlite3_stmt *insert;
};

static int to_errno(sqlite3 *db, int rc)
{
	int sys;

	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_DONE:
	case SQLITE_ROW:
		return 0;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_FULL:
		return -ENOSPC;
	default:
		sys = db ? sqlite3_system_errno(db) : 0;
		return sys ? -sys : -EIO;
	}
}

static int exec_sql(struct db *d, const char *sql)
{
	return to_errno(d->db, sqlite3_exec(d->db, sql, NULL, NULL, NULL));
}

static int bind(struct db *d, int at, enum pt_col_type type,
		const struct pt_cell *c)
{
	char *text;

	if (c->null)
		return sqlite3_bind_null(d->insert, at);
	if (type == PT_COL_REAL)
		return sqlite3_bind_double(d->insert, at, c->d);
	if (type == PT_COL_INT)
		return sqlite3_bind_int64(d->insert, at, c->i);
	if (type == PT_COL_ID && c->id <= INT64_MAX)
		return sqlite3_bind_int64(d->insert, at, (int64_t)c->id);
	if (type == PT_COL_ID) { /* no integer of SQLite holds it */
		char digits[24];

		snprintf(digits, sizeof(digits), "%llu",
			 (unsigned long long)c->id);
		return sqlite3_bind_text(d->insert, at, digits, -1,
					 SQLITE_TRANSIENT);
	}
	text = pt_str_utf8(c->s, NULL);
	if (!text)
		return SQLITE_NOMEM;
	return sqlite3_bind_text(d->insert, at, text, -1, free);
}

static int put_row(struct pt_rows *r, const struct pt_cell *cells, size_t n)
{
	struct db *d = (struct db *)r;
	int rc = SQLITE_OK;
	size_t i;

	if (n != r->n_cols)
		return -EINVAL;
	for (i = 0; i < n && rc == SQLITE_OK; i++)
		rc = bind(d, (int)i + 1, r->cols[i].type, &cells[i]);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(d->insert);
	if (rc == SQLITE_DONE)
		rc = sqlite3_reset(d->insert);
	return to_errno(d->db, rc);
}

/* "CREATE TABLE ..." and "INSERT ..." of names and types of our own. */
static int open_table(struct db *d, const struct pt_table *t)
{
	static const char *const types[] = {
		[PT_COL_INT] = "INTEGER", [PT_COL_ID] = "INTEGER",
		[PT_COL_REAL] = "REAL", [PT_COL_TEXT] = "TEXT",
	};
	sqlite3_str *make = sqlite3_str_new(d->db);
	sqlite3_str *add = sqlite3_str_new(d->db);
	char *make_sql, *add_sql;
	size_t i;
	int err;

	pt_rows_begin(&d->rows, t);
	sqlite3_str_appendf(make, "CREATE TABLE %s (", t->name);
	sqlite3_str_appendf(add, "INSERT INTO %s VALUES (", t->name);
	for (i = 0; i < d->rows.n_cols; i++) {
		sqlite3_str_appendf(make, "%s%s %s", i ? ", " : "",
				    d->rows.cols[i].name,
				    types[d->rows.cols[i].type]);
		sqlite3_str_appendall(add, i ? ",?" : "?");
	}
	sqlite3_str_appendall(make, ")");
	sqlite3_str_appendall(add, ")");
	make_sql = sqlite3_str_finish(make);
	add_sql = sqlite3_str_finish(add);
	err = make_sql && add_sql ? exec_sql(d, make_sql) : -ENOMEM;
	err = err ?: to_errno(d->db, sqlite3_prepare_v2(d->db, add_sql, -1, &d->insert, NULL));
	sqlite3_free(make_sql);
	sqlite3_free(add_sql);
	return err;
}

static int put_tables(const struct pt_export *x, struct db *d)
{
	const struct pt_table *t;
	size_t i;
	int err = 0;

	for (i = 0; (t = pt_table_at(i)) && !err; i++) {
		err = open_table(d, t);
		err = err ?: t->rows(x, &d->rows);
		sqlite3_finalize(d->insert);
		d->insert = NULL;
	}
	return err;
}

/* SQLite opens files by name only. It would follow links itself, from the name of an
 * open descriptor to one that a file without a name does not have, and let the kernel
 * follow none. This leaves it to the kernel, which opens that very file. */
static int open_by_link(const char *path, int flags, int mode)
{
	return open(path, flags & ~O_NOFOLLOW, mode);
}

static int name_as_it_is(sqlite3_vfs *vfs, const char *name, int size, char *out)
{
	(void)vfs;
	return snprintf(out, (size_t)size, "%s", name) < size ? SQLITE_OK :
								SQLITE_CANTOPEN;
}

static int open_fd(struct db *d, sqlite3_vfs *vfs, int fd)
{
	const sqlite3_vfs *usual = sqlite3_vfs_find(NULL);
	char path[32];
	int err;

	if (!usual)
		return -ENOMEM;
	*vfs = *usual;
	vfs->zName = "pipetrace";
	vfs->pNext = NULL;
	vfs->xFullPathname = name_as_it_is;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = sqlite3_vfs_register(vfs, 0);
	err = err ?: vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_by_link);
	err = err ?: sqlite3_open_v2(path, &d->db, SQLITE_OPEN_READWRITE, vfs->zName);
	return to_errno(d->db, err);
}

int pt_export_sqlite(const struct pt_export *x, int fd)
{
	struct db d = { .rows = { .row = put_row } };
	sqlite3_vfs vfs = { .zName = NULL };
	char pragmas[160];
	int err = open_fd(&d, &vfs, fd);

	/* the file gets its name when it is whole: no journal is needed */
	snprintf(pragmas, sizeof(pragmas),
		 "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
		 "PRAGMA application_id=%d; PRAGMA user_version=%d; BEGIN;",
		 APPLICATION_ID, SCHEMA);
	err = err ?: exec_sql(&d, pragmas);
	err = err ?: put_tables(x, &d);
	err = err ?: exec_sql(&d, views);
	err = err ?: exec_sql(&d, "COMMIT;");
	if (sqlite3_close(d.db) != SQLITE_OK && !err)
		err = -EIO;
	if (vfs.zName) {
		vfs.xSetSystemCall(&vfs, "open", NULL);
		sqlite3_vfs_unregister(&vfs);
	}
	return err;
}
