package browser_test

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/services"
)

// taskPages are the paths of further tasks of the shop, with the names of their pictures.
var taskPages = []struct{ name, path string }{
	{"line", "/task?kind=account.book&biz_id=order-12400-refund"},
	{"archived", "/task?kind=quote.render&biz_id=offer-2024-118"},
}

// formPages are pages with a form, which is opened.
var formPages = []struct{ path, form string }{
	{path: "/failures", form: ".groups summary"},
	{path: "/limits", form: "td.do summary"},
	{path: "/kind?name=webhook.deliver.partner", form: ".story summary"},
}

// wideTable is the name of a table that is wider than its place.
const wideTable = `[...document.querySelectorAll(".scroll")].filter((e) => e.scrollWidth > e.clientWidth)
	.map((e) => e.ariaLabel).join()`

// maxPicture is the greatest number of bytes of a picture of the documentation.
const maxPicture = 100_000

// minRows is the number of tasks on a screen of 1,280 by 860 pixels.
const minRows = 28

// hourSQL is the last hour of three subscribers: one follows, one catches up, and one is paused.
const hourSQL = `
insert into taskledger.moment (at, snapshot, top, bound)
select now() - m * interval '1 minute', pg_current_snapshot(), e.top, pg_snapshot_xmax(pg_current_snapshot())
  from generate_series(1, 60) m
 cross join lateral (
   select max(e.position) as top from taskledger.event e where e.recorded_at <= now() - m * interval '1 minute') e;

insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, after_position, origin, login, mark, recorded_at)
select 'subscriber/' || s.name, 1000 + m, pg_current_snapshot(), e.top, pg_snapshot_xmax(pg_current_snapshot()),
       e.top, taskledger_internal.origin(), s.login, s.mark::json, now() - (60 - m) * interval '1 minute'
  from (values ('mails', 'mailer', '{}', 0, 0.0), ('search-index', 'search', '{}', 55, 0.7),
               ('warehouse', 'stock', '{"paused": true}', 0, -1.0)) s (name, login, mark, behind, gain)
 cross join generate_series(1, 60) m
 cross join lateral (
   select max(e.position) as top from taskledger.event e
    where e.recorded_at <= now() - interval '1 minute' * (60 - m + s.behind - s.gain * m)) e
 where s.name <> 'warehouse' or m < 20
 order by 1, 2;

update taskledger.login set name = 'shop';`

// pauseSQL is the record of the pause of a subscriber.
const pauseSQL = `
insert into taskledger.event (xid, recorded_at, version, attempt, type, login_id, shard, kind, biz_id, actor, data)
select pg_current_xact_id(), p.at, n, n - 1, (array['enqueued', 'succeeded'])[n]::taskledger.event_type,
       taskledger_internal.login_id(), 0, 'taskledger.operation',
       'subscriber.pause/' || to_char(p.at, 'YYYY-MM-DD"T"HH24:MI:SS'), 'ada', case n when 1 then json_build_object(
         'action', 'subscriber.pause', 'reason', 'the stock is counted',
         'detail', json_build_object('subscriber', 'warehouse')) end
  from (select now() - interval '41 minutes' as at) p
 cross join generate_series(1, 2) n`

// firingsSQL is the last ten firings of the schedule crm-sync, of which one failed.
const firingsSQL = `
with tx as materialized (
  select pg_current_xact_id() as xid, taskledger_internal.login_id() as login_id
), firing as (
  select i, at, 'crm-sync@' || to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as biz_id
    from generate_series(1, 10) i
   cross join lateral (
     select date_bin('15 minutes', now(), 'epoch') - (10 - i) * interval '15 minutes' as at) t
), event as (
  insert into taskledger.event
         (xid, recorded_at, version, attempt, type, login_id, shard, kind, biz_id, actor, data)
  select tx.xid, least(now(), f.at + (n - 1) * interval '800 milliseconds'), n, least(n - 1, 1),
         (case when n = 1 then 'enqueued' when f.i <> 6 then 'succeeded' when n = 2 then 'started'
               else 'buried' end)::taskledger.event_type,
         tx.login_id, f.i, 'crm.sync', f.biz_id, case n when 1 then 'scheduler' else 'shop-3-p9ad' end,
         (case when n = 1 or f.i = 6 and n = 2 then '{}'
               when f.i = 6 then '{"error":{"message":"the CRM answers 503"}}'
               else '{"duration_ms":800}' end)::json
    from tx
   cross join firing f
   cross join generate_series(1, case f.i when 6 then 3 else 2 end) n
   order by f.at, n
)
update taskledger.schedule s
   set last_at = f.at, last_kind = 'crm.sync', last_biz_id = f.biz_id
  from firing f
 where s.name = 'crm-sync' and f.i = 10`

// checks are results as those of taskledger doctor.
var checks = []services.Check{
	{Name: "connections", Level: "warning", Text: "87 of 100 in use, 3 reserved for administrators",
		Cure: "raise max_connections, or lower pool_max_conns in DATABASE_URL"},
	{Name: "version", Level: "ok", Text: "PostgreSQL 15.18"},
	{Name: "fsync", Level: "ok", Text: "fsync on, full_page_writes on"},
	{Name: "autovacuum", Level: "ok", Text: "on"},
	{Name: "schema", Level: "ok", Text: "migrated to this version"},
}

// serveAll serves the console of a shop with all services.
func serveAll(t *testing.T) *site {
	t.Helper()
	db := ledgertest.Pool(t, append([]string{"relay"}, databaseRoles...)...)
	s := &site{t: t, db: db}
	s.sell(t, firingsSQL, pauseSQL)
	owner := ledgertest.As(t, db, ledgertest.Owner)
	if err := periodic.Pause(t.Context(), owner, "nightly-report", "ada", "the warehouse moves"); err != nil {
		t.Fatal(err)
	}
	s.cause(t)
	s.limit(t)
	s.archive(t)
	if _, err := owner.Exec(t.Context(), hourSQL, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	handler, err := services.NewHandler(services.HandlerConfig{DB: db, Logger: log, Version: "v1.0.0",
		Checks: func(context.Context) []services.Check { return checks }})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() {
		ended <- services.Run(ctx, services.Config{DB: db, Server: services.ServerConfig{Dir: t.TempDir()},
			Listener: listener, Logger: log, API: handler})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the services ended: %v", err)
		}
	})
	return s
}

// cause adds a task that has caused others, of which two wait for others.
func (s *site) cause(t *testing.T) {
	t.Helper()
	key := func(kind string) ledger.Key { return ledgertest.Key(t, kind+"/order-12400") }
	enqueue := func(cause, k ledger.Key, after ...ledger.Key) {
		options := &ledger.EnqueueOptions{Actor: "checkout", After: after}
		if cause != (ledger.Key{}) {
			options.Meta.Causation = cause.String() + "/1@1"
		}
		if _, err := ledger.Enqueue(t.Context(), s.db, k, []byte(`{"order": "order-12400"}`), options); err != nil {
			t.Fatal(err)
		}
	}
	confirm := key("order.confirm")
	enqueue(ledger.Key{}, confirm)
	for _, kind := range []string{"payment.capture", "stock.reserve", "fraud.score"} {
		enqueue(confirm, key(kind))
	}
	enqueue(confirm, key("shipment.label"), key("payment.capture"), key("stock.reserve"))
	enqueue(key("payment.capture"), key("mail.send.receipt"))
	enqueue(key("payment.capture"), key("invoice.render"))
	enqueue(key("invoice.render"), key("invoice.archive"), key("invoice.render"))
	s.project()
}

// limit adds limits of starts, and a line of tasks.
func (s *site) limit(t *testing.T) {
	t.Helper()
	few, many := 2, 20
	for _, l := range []ledger.StartLimit{
		{Name: "partner-api", Kinds: map[ledger.Kind]int{"webhook.deliver.partner": 2, "crm.sync": 1},
			MaxRunning: &many, Rate: &ledger.StartRate{Starts: 100, Period: time.Minute}},
		{Name: "customer.export", Kinds: map[ledger.Kind]int{"customer.export": 1}, Per: ledger.PerPartition,
			MaxRunning: &few},
	} {
		if err := ledger.SetStartLimit(t.Context(), ledgertest.As(t, s.db, "operator"), l, "ada"); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"order-12400-debit", "order-12400-refund", "order-12401-debit"} {
		_, err := ledger.Enqueue(t.Context(), s.db, ledgertest.Key(t, "account.book/"+id), []byte(`{"customer": 17}`),
			&ledger.EnqueueOptions{Actor: "checkout", OrderKey: "customer/17"})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.project()
}

// archive adds an archived task.
func (s *site) archive(t *testing.T) {
	t.Helper()
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	k := ledgertest.Key(t, "quote.render/offer-2024-118")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	ledgertest.Append(t, owner, k, ledger.EventStarted, ledger.EventSucceeded)
	s.project()
	if _, err := seal.Run(t.Context(), ledgertest.As(t, s.db, "archiver"), nil); err != nil { // else it holds the task
		t.Fatal(err)
	}
	r, err := archiver.Run(t.Context(), ledgertest.As(t, s.db, "archiver"), archiver.Options{
		Kinds: []ledger.Kind{k.Kind}, Hold: time.Nanosecond, Actor: "ada", Reason: "the offers of 2024"})
	if err != nil || r.Tasks != 1 {
		t.Fatalf("archived %+v, %v", r, err)
	}
}

// The pictures of docs/console show each page of a shop in which all services run, in light, dark, and on a phone. Each
// is small. With -screenshots they are written.
func TestPicturesForTheDocumentation(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serveAll(t)
	secret := s.openSession(api.Admin)
	for _, form := range []struct {
		name          string
		width, height int64
		scheme        string
	}{
		{name: "light", width: 1280, height: 860, scheme: "light"},
		{name: "dark", width: 1280, height: 860, scheme: "dark"},
		{name: "phone", width: 360, height: 740, scheme: "light"},
	} {
		here := *s
		here.t = t
		c := here.open(t, int(form.width), int(form.height))
		c.do(chromedp.EmulateViewport(form.width, form.height))
		_, err := chromedp.Call(c.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: form.scheme}}})
		if err != nil {
			t.Fatal(err)
		}
		c.visit("/sign-in")
		c.write("sign-in-" + form.name)
		c.signInBy(secret)
		c.until(`!/relay|dispatcher/i.test(document.querySelector("section").innerText) || (location.reload(), false)`)
		for _, p := range pagesOf {
			c.visit(p.path)
			c.write(p.name + "-" + form.name)
			const shown = `[...document.querySelectorAll("tbody tr")].filter((r) =>
				r.getBoundingClientRect().bottom <= innerHeight).length`
			rows := read(c, chromedp.Evaluate[int](shown))
			if name := read(c, chromedp.Evaluate[string](wideTable)); name != "" {
				t.Errorf("%s: the table %s of %s is wider than its place", form.name, name, p.name)
			}
			if p.name == "tasks" && form.width > 1000 && rows < minRows {
				t.Errorf("%s: %d rows of tasks are on the screen, want at least %d", form.name, rows, minRows)
			}
		}
		c.visit("/task?kind=order.confirm&biz_id=order-12400")
		read(c, chromedp.Evaluate[bool](`(document.querySelector(".graph").scrollIntoView({block: "center"}), true)`))
		c.write("graph-" + form.name)
		for _, f := range c.axe() {
			t.Errorf("the graph: %s, %s: %s\n%s", f.Impact, f.ID, f.Help, f.Nodes)
		}
		for _, p := range taskPages {
			c.visit(p.path)
			c.write(p.name + "-" + form.name)
			for _, f := range c.axe() {
				t.Errorf("%s: %s, %s: %s\n%s", p.name, f.Impact, f.ID, f.Help, f.Nodes)
			}
		}
		for _, p := range formPages {
			c.visit(p.path)
			c.do(chromedp.Click(chromedp.CSS(p.form)))
			for _, f := range c.axe() {
				t.Errorf("%s: %s, %s: %s\n%s", p.path, f.Impact, f.ID, f.Help, f.Nodes)
			}
		}
		c.check(form.name)
	}
}

// openSession returns a token that works at once, because the API reads it with the first request.
func (s *site) openSession(role api.Role) string {
	s.t.Helper()
	_, secret, err := api.CreateToken(s.t.Context(), s.db, api.TokenOptions{Name: "ada", Role: role})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// write checks the size of a picture of the page with few colours, and writes it, if asked for.
func (c *chromium) write(name string) {
	c.t.Helper()
	text, err := withPalette(read(c, chromedp.CaptureScreenshot()))
	if err != nil {
		c.t.Fatal(err)
	}
	if len(text) > maxPicture {
		c.t.Errorf("the picture %s has %d bytes, want at most %d", name, len(text), maxPicture)
	}
	if *screenshots == "" {
		return
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), text, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// paletteSize is the number of colours of a picture: those that occur most, of those that differ visibly.
const paletteSize = 200

// withPalette returns a picture whose pixels are numbers of colours.
func withPalette(text []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	colourAt := func(x, y int) color.NRGBA { return color.NRGBAModel.Convert(from.At(x, y)).(color.NRGBA) }
	size := from.Bounds()
	occurs := map[color.NRGBA]int{}
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			occurs[colourAt(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(occurs), func(a, b color.NRGBA) int {
		return cmp.Or(cmp.Compare(occurs[b], occurs[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G),
			cmp.Compare(a.B, b.B))
	})
	near := func(a, b uint8) bool { return max(a, b)-min(a, b) < 6 }
	var palette color.Palette
	for _, c := range all {
		isNew := !slices.ContainsFunc(palette, func(o color.Color) bool {
			k := o.(color.NRGBA)
			return near(c.R, k.R) && near(c.G, k.G) && near(c.B, k.B)
		})
		if isNew && len(palette) < paletteSize {
			palette = append(palette, c)
		}
	}
	numbers := make(map[color.NRGBA]uint8, len(all))
	for _, c := range all {
		numbers[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(size, palette)
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			to.SetColorIndex(x, y, numbers[colourAt(x, y)])
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, to)
	return b.Bytes(), err
}
