package projector

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// copyTasks inserts tasks that are new to the table, as tasks_insert.sql does. COPY costs less: it checks no index,
// fills whole pages, and decodes no arrays.
func (p *tasks) copyTasks(ctx context.Context, tx pgx.Tx, changes []*change) error {
	var rows copyText
	for _, c := range changes {
		t := c.task
		rows.text(string(t.Kind))
		rows.text(string(t.BizID))
		rows.number(int64(t.Shard))
		rows.text(string(t.State))
		rows.optional(asideOf(t))
		rows.number(int64(t.Version))
		rows.number(int64(t.Attempt))
		rows.number(int64(t.Failures))
		rows.time(t.EnqueuedAt)
		rows.time(t.UpdatedAt)
		rows.optional(t.Error)
		rows.optional(t.Fingerprint)
		rows.time(t.DueAt)
		rows.number(int64(t.Priority.Level()))
		rows.text(t.Partition)
		rows.optional(causeOf(t))
		rows.end()
	}
	sql := "copy " + p.schema + ".task (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, " +
		"updated_at, error, fingerprint, due_at, priority, partition, cause) from stdin"
	_, err := tx.Conn().PgConn().CopyFrom(ctx, &rows.buffer, sql)
	return pgerr.Explain("insert tasks", err)
}

// copyText is rows in the text format of COPY.
type copyText struct {
	buffer  bytes.Buffer
	scratch []byte
	inRow   bool
}

func (c *copyText) separate() {
	if c.inRow {
		c.buffer.WriteByte('\t')
	}
	c.inRow = true
}

// text adds a text. PostgreSQL cannot store NUL, which the JSON of an event may contain: it becomes the replacement
// character, as in pgarray.
func (c *copyText) text(s string) {
	c.separate()
	for i := range len(s) {
		switch b := s[i]; b {
		case 0:
			c.buffer.WriteString("\uFFFD")
		case '\\':
			c.buffer.WriteString(`\\`)
		case '\t':
			c.buffer.WriteString(`\t`)
		case '\n':
			c.buffer.WriteString(`\n`)
		case '\r':
			c.buffer.WriteString(`\r`)
		default:
			c.buffer.WriteByte(b)
		}
	}
}

// optional adds a text, or null for "".
func (c *copyText) optional(s string) {
	if s == "" {
		c.null()
		return
	}
	c.text(s)
}

func (c *copyText) number(n int64) {
	c.separate()
	c.scratch = strconv.AppendInt(c.scratch[:0], n, 10)
	c.buffer.Write(c.scratch)
}

// time adds a time, or null for the zero time.
func (c *copyText) time(t time.Time) {
	if t.IsZero() {
		c.null()
		return
	}
	c.separate()
	c.scratch = t.UTC().AppendFormat(c.scratch[:0], "2006-01-02 15:04:05.999999Z07:00")
	c.buffer.Write(c.scratch)
}

func (c *copyText) null() {
	c.separate()
	c.buffer.WriteString(`\N`)
}

func (c *copyText) end() {
	c.buffer.WriteByte('\n')
	c.inRow = false
}
