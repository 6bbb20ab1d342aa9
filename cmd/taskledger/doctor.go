package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

//go:embed sql/doctor.sql
var doctorSQL string

// Levels of a finding.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelFailure = "failure"
)

var levelPaints = map[string]paint{levelOK: green, levelWarning: yellow, levelFailure: red}

// finding is the result of one examination.
type finding struct {
	Check string `json:"check"`
	Level string `json:"level"`
	Text  string `json:"text"`
	Cure  string `json:"cure,omitempty"`
}

// diagnosis collects findings.
type diagnosis struct {
	Findings []finding `json:"findings"`
}

func (d *diagnosis) ok(check, format string, a ...any) {
	d.Findings = append(d.Findings, finding{Check: check, Level: levelOK, Text: fmt.Sprintf(format, a...)})
}

func (d *diagnosis) warn(check, cure, format string, a ...any) {
	d.Findings = append(d.Findings, finding{check, levelWarning, fmt.Sprintf(format, a...), cure})
}

func (d *diagnosis) fail(check, cure, format string, a ...any) {
	d.Findings = append(d.Findings, finding{check, levelFailure, fmt.Sprintf(format, a...), cure})
}

func newDoctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Examine the database, NATS, rights and settings, and show cures",
		Long: `Connect to PostgreSQL and NATS with the rights of this login, and examine versions, settings, clocks,
roles, pools, the stream, schedules and the conditions of taskledger status. Each finding is ok, a
warning or a failure with its cure. It changes nothing. The exit code is 1 if there is a failure.`,
		Example: "  taskledger doctor\n  taskledger doctor -o json | jq '.findings[] | select(.level != \"ok\")'",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := examine(cmd.Context(), a)
			if err := printList(a, d, d.Findings, d.render); err != nil {
				return err
			}
			if n := d.count(levelFailure); n > 0 {
				return failf(exitFailed, "failures: %d; warnings: %d", n, d.count(levelWarning))
			}
			return nil
		},
	}
}

func (d *diagnosis) count(level string) (n int) {
	for _, f := range d.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (d *diagnosis) render(w io.Writer) {
	t := newTable([]any{"check", "level", "finding"})
	for _, f := range d.Findings {
		text := plain(f.Text)
		if f.Cure != "" {
			text += "\n  cure: " + plain(f.Cure)
		}
		t.AppendRow(table.Row{f.Check, levelPaints[f.Level].on(f.Level), text})
	}
	renderTable(w, t)
}

// natsCure is the cure if NATS cannot be reached, unless the error contains its own cure.
const natsCure = "check NATS_URL, its credentials, and that NATS is running there; without NATS_URL see the log of " +
	"taskledger serve, which runs it"

// examine makes all examinations that are possible.
func examine(ctx context.Context, a *app) *diagnosis {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		d, f := &diagnosis{}, a.describe(err)
		d.fail("database", f.hint, "%s", f.message)
		return d
	}
	defer pool.Close()
	return examineOn(ctx, a, pool)
}

// checks makes all examinations for the console, without secrets.
func (a *app) checks(ctx context.Context, pool *pgxpool.Pool) (all []services.Check) {
	for _, f := range examineOn(ctx, a, pool).Findings {
		all = append(all, services.Check{Name: f.Check, Level: f.Level,
			Text: a.secrets.hide(f.Text), Cure: a.secrets.hide(f.Cure)})
	}
	return all
}

// examineOn makes the examinations of a database that is open.
func examineOn(ctx context.Context, a *app, pool *pgxpool.Pool) *diagnosis {
	d := &diagnosis{}
	login := d.examineServer(ctx, a, pool)
	err := migrations.Check(ctx, a.config.databaseURL)
	if login.hasRole && pgerr.Is(err, pgerr.InsufficientPrivilege) {
		d.ok("schema", "not examined, nor what depends on it: the roles of the login may not read it")
		if login.isWorker {
			d.examineWorker(a)
		}
		return d
	}
	if err != nil {
		f := a.describe(err)
		d.fail("schema", f.hint, "%s", f.message)
		return d
	}
	d.ok("schema", "migrated to this version")
	js, err := a.jetStream()
	switch {
	case err != nil:
		d.failed(a, "nats", levelFailure, natsCure, err)
	case js == nil:
		d.ok("nats", "not examined: the login may not use it")
	default:
		defer js.Conn().Close()
		d.examineNATS(ctx, a, pool, js)
	}
	d.examineWork(ctx, a, pool, js, err)
	return d
}

// login describes the rights of the command's login.
type login struct{ hasRole, isWorker bool }

// examineWorker connects to NATS as a worker does.
func (d *diagnosis) examineWorker(a *app) {
	a.natsUser = natsconfig.Worker
	nc, err := a.connectNATS(false)
	if err != nil {
		d.failed(a, "nats", levelFailure, natsCure, err)
		return
	}
	defer nc.Close()
	d.ok("nats", "connected to %s, version %s", stream.Server(nc), nc.ConnectedServerVersion())
}

// examineServer examines the settings of PostgreSQL, its clock and the login, which it returns.
func (d *diagnosis) examineServer(ctx context.Context, a *app, pool *pgxpool.Pool) (l login) {
	var version, most, reserved, used int64
	var fsync, pages, autovacuum, commit, encoding, name, roles, product string
	var isStandby, isSuperuser, bypasses, hasCitus bool
	var at time.Time
	begun := time.Now()
	if _, err := pgquery.Row(ctx, pool, doctorSQL, nil, &version, &fsync, &pages, &autovacuum, &commit, &encoding,
		&most, &reserved, &used, &isStandby, pgquery.Micros(&at), &isSuperuser, &name, &roles,
		&l.isWorker, &bypasses, &product, &hasCitus); err != nil {
		f := a.describe(err)
		d.fail("database", f.hint, "%s", f.message)
		return l
	}
	skew := at.Sub(begun.Add(time.Since(begun) / 2)).Round(time.Millisecond)
	d.check("version", version >= 150000, levelFailure, "upgrade to PostgreSQL 15 or later",
		fmt.Sprintf("PostgreSQL %d.%d", version/10000, version%10000))
	d.examineProduct(product, hasCitus)
	d.check("primary", !isStandby, levelFailure, "name the primary in DATABASE_URL", "standby: "+yesNo(isStandby))
	d.check("fsync", fsync == "on" && pages == "on", levelFailure,
		"set fsync and full_page_writes to on: a crash can damage the database",
		fmt.Sprintf("fsync %s, full_page_writes %s", fsync, pages))
	d.check("synchronous_commit", commit != "off", levelWarning,
		"set it to on for producers: a crash of the server undoes commits", commit)
	d.check("autovacuum", autovacuum == "on", levelWarning,
		"tables grow without it: ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();", autovacuum)
	d.check("encoding", encoding == "UTF8", levelFailure, "create the database with encoding UTF8", encoding)
	d.check("connections", used*5 < (most-reserved)*4, levelWarning,
		"raise max_connections, or lower pool_max_conns in DATABASE_URL",
		fmt.Sprintf("%d of %d in use, %d reserved for administrators", used, most, reserved))
	d.check("clock", skew.Abs() < time.Second, levelWarning, "synchronize the clocks of this machine and of PostgreSQL",
		fmt.Sprintf("PostgreSQL is %s ahead of this machine", skew))
	d.check("pool", pool.Config().MaxConns >= 4, levelWarning, "raise pool_max_conns: a worker needs 4 and more",
		fmt.Sprintf("%d connections", pool.Config().MaxConns))
	cure := "connect programs as logins with the roles of their jobs: docs/operations.md, Rights"
	rights := "superuser: " + yesNo(isSuperuser)
	if bypasses && !isSuperuser {
		rights += ", BYPASSRLS: yes"
		cure += "; BYPASSRLS lets a login do the jobs of all others"
	}
	d.check("login", !isSuperuser && !bypasses && roles != "", levelWarning, cure,
		fmt.Sprintf("%s, %s, roles: %s", name, rights, orNone(roles)))
	l.hasRole = roles != ""
	return l
}

// failed adds the finding of an examination that failed, with the cure of its error, or with cure if none is known.
func (d *diagnosis) failed(a *app, check, level, cure string, err error) {
	f := a.describe(err)
	if f.hint != "" {
		cure = f.hint
	}
	d.Findings = append(d.Findings, finding{check, level, f.message, cure})
}

// check adds a finding: ok, or the given level.
func (d *diagnosis) check(name string, isOK bool, level, cure, text string) {
	if isOK {
		d.ok(name, "%s", text)
		return
	}
	d.Findings = append(d.Findings, finding{name, level, text, cure})
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// examineNATS examines the limits of NATS and of the stream.
func (d *diagnosis) examineNATS(ctx context.Context, a *app, pool *pgxpool.Pool, js jetstream.JetStream) {
	const roomForHeaders = 64 << 10
	d.ok("nats", "connected to %s, version %s", stream.Server(js.Conn()), js.Conn().ConnectedServerVersion())
	d.check("max_payload", js.Conn().MaxPayload() >= 256<<10+roomForHeaders, levelWarning,
		"raise max_payload of NATS, or lower max_args_bytes: larger events are parked",
		count(js.Conn().MaxPayload())+" bytes")
	status, err := relays.ReadStatus(ctx, pool, nil, outbox.StreamConfig{})
	if err == nil && status.IsOff {
		d.ok("stream", "off: taskledger serve --stream off")
		return
	}
	s, err := js.Stream(ctx, stream.PrefixOf(js.Conn()).Stream())
	if err != nil {
		d.failed(a, "stream", levelWarning, "start taskledger serve, whose relay makes the stream", err)
		return
	}
	config := s.CachedInfo().Config
	d.check("stream", config.MaxBytes > 0, levelWarning,
		"give the stream a limit: nats stream edit "+config.Name+" --max-bytes",
		fmt.Sprintf("replicas %d, max bytes %s", config.Replicas, count(config.MaxBytes)))
}

// liveKinds returns the kinds that live workers handle.
func liveKinds(ctx context.Context, db ledger.DB) (map[ledger.Kind]bool, error) {
	all, err := workers.ReadWorkers(ctx, db, "", lists.All)
	alive := make(map[ledger.Kind]bool)
	for _, w := range all {
		for _, k := range w.Kinds {
			alive[k.Kind] = alive[k.Kind] || w.Alive
		}
	}
	return alive, err
}

// idleSchedules returns the names of the schedules that are not paused and whose kinds are not alive.
func idleSchedules(ctx context.Context, db ledger.DB, alive map[ledger.Kind]bool) (idle []string, err error) {
	f := pageFlags{limit: defaultPage}
	for {
		var page []periodic.Status
		page, f.after, err = readPage(ctx, db, f, periodic.ReadSchedules,
			func(s periodic.Status) string { return s.Schedule.Name })
		for _, s := range page {
			if !s.Paused && !alive[s.Schedule.Kind] {
				idle = append(idle, s.Schedule.Name)
			}
		}
		if err != nil || f.after == "" {
			return idle, err
		}
	}
}

// examineWork examines schedules, and the conditions of the services.
func (d *diagnosis) examineWork(
	ctx context.Context, a *app, pool *pgxpool.Pool, js jetstream.JetStream, failure error,
) {
	alive, err := liveKinds(ctx, pool)
	if err != nil {
		d.failed(a, "workers", levelWarning, "grant the login the role reader: docs/operations.md, Rights", err)
		return
	}
	idle, err := idleSchedules(ctx, pool, alive)
	if err != nil {
		d.failed(a, "schedules", levelWarning, "grant the login the role operator: docs/operations.md, Rights", err)
		return
	}
	d.check("schedules", len(idle) == 0, levelWarning,
		"start workers of their kinds, or: taskledger pause schedule NAME",
		"without a live worker: "+orNone(printable.Names(idle, maxNamed)))
	r, err := health.Read(ctx, health.Config{
		DB: pool, JetStream: js, NATSError: failure, Alarms: alarm.ReadUndelivered,
	})
	if err != nil {
		d.failed(a, "conditions", levelWarning, "grant the login the role reader: docs/operations.md, Rights", err)
		return
	}
	if len(r.Degraded) == 0 {
		d.ok("conditions", "no condition holds")
	}
	for _, c := range r.Degraded {
		d.warn(string(c.Name), c.Cure, "%s", c.Text)
	}
}
