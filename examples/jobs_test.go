package examples_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A campaign gives each customer one coupon. Two workers share its tasks.
func testCampaign(p programs, db *pgxpool.Pool) {
	first, second := p.start("campaign", "work"), p.start("campaign", "work")
	p.wait(p.start("campaign", "join", "ada", "bob", "eve"))
	awaitRow(p.t, db, `select from taskledger.workers where detail::text like '%campaign.coupon%' having count(*) = 2`)
	p.wait(p.start("campaign", "now"))
	awaitRow(p.t, db, `select from campaign_coupons having count(*) = 3 and count(distinct customer) = 3`)
	awaitRow(p.t, db, `select from taskledger.event where kind = 'campaign.start' and type = 'succeeded'`)
	p.stop(first)
	p.stop(second)
}

// partner refuses order R-1, and is down for the first request about each other order.
type partner struct {
	mu    sync.Mutex
	calls map[string]int
}

func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	p.calls[key]++
	switch {
	case strings.HasSuffix(key, "/R-1"):
		w.WriteHeader(http.StatusUnprocessableEntity)
	case p.calls[key] == 1:
		w.WriteHeader(http.StatusBadGateway)
	}
}

// The partner gets an order again after a failure, and one that it refuses only once.
func testPartner(p programs, db *pgxpool.Pool) {
	calls := &partner{calls: make(map[string]int)}
	server := httptest.NewServer(calls)
	defer server.Close()
	p.env = append(slices.Clip(p.env), "PARTNER_URL="+server.URL)
	worker := p.start("partner", "work")
	p.wait(p.start("partner", "send", "P-1", "R-1"))
	const events = `select from taskledger.event where kind = 'partner.call' and biz_id = `
	awaitRow(p.t, db, events+`'P-1' and type = 'succeeded'`)
	awaitRow(p.t, db, events+`'R-1' and type = 'buried'`)
	p.stop(worker)
	calls.mu.Lock()
	defer calls.mu.Unlock()
	if calls.calls["partner.call/P-1"] != 2 || calls.calls["partner.call/R-1"] != 1 {
		p.t.Errorf("calls: %v", calls.calls)
	}
}

// Each request changes the balance once, even if it is repeated. One without enough points is refused, and does not
// stop the customer's line.
func testPoints(p programs, _ *pgxpool.Pool) {
	program, log := logged(p.t, p.env, filepath.Join(p.bin, "points"), "127.0.0.1:0")
	address := awaitAddress(p.t, log)
	for _, test := range []struct {
		id, change, want string
		status           int
	}{
		{id: "1", change: "5", want: "5\n", status: http.StatusOK},
		{id: "1", change: "5", want: "5\n", status: http.StatusOK},
		{id: "2", change: "-9", want: "points.change/2 is dead: the handler returned a permanent error: " +
			"not enough points\n", status: http.StatusConflict},
		{id: "3", change: "-2", want: "3\n", status: http.StatusOK},
		{id: "3", change: "-1", want: "enqueue: points.change/3 exists with other args: args.points was -2, is -1; " +
			"it is succeeded, at version 3\n", status: http.StatusConflict},
	} {
		url := "http://" + address + "/customers/ada/points?change=" + test.change
		request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, url, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		request.Header.Set("Idempotency-Key", test.id)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			p.t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != test.status || string(body) != test.want {
			p.t.Errorf("%s of %s: %d %q, %v", test.change, test.id, response.StatusCode, body, err)
		}
	}
	if err := program.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	rest, err := io.ReadAll(log)
	if waited := program.Wait(); waited != nil || err != nil {
		p.t.Errorf("%v, %v\n%s", waited, err, rest)
	}
}

// awaitAddress returns the address that the program logs.
func awaitAddress(t *testing.T, log *bufio.Reader) string {
	t.Helper()
	for {
		line, err := log.ReadString('\n')
		if _, address, isFound := strings.Cut(strings.TrimSpace(line), "listening on "); isFound {
			return address
		}
		if err != nil {
			t.Fatalf("the log ends without an address: %v", err)
		}
	}
}
