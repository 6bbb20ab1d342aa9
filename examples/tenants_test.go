package examples_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Two tenants have a ledger each, behind one NATS server with an account each. Each order is worked on in its tenant's
// database alone.
func TestTenants(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Accounts: `accounts {
		acme: { jetstream: enabled, users: [{user: acme, password: one}] }
		globex: { jetstream: enabled, users: [{user: globex, password: two}] }
	}`})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	address, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	host := address.Host
	acme, globex := ledgertest.Pool(t), ledgertest.Pool(t)
	serve(t, ledgertest.As(t, acme, "relay"), "nats://acme:one@"+host)
	serve(t, ledgertest.As(t, globex, "relay"), "nats://globex:two@"+host)
	p := programs{t: t, bin: build(t), env: append(os.Environ(), "NATS_URL=",
		"TENANTS=acme="+acme.Config().ConnString()+",nats://acme:one@"+host+
			" globex="+globex.Config().ConnString()+",nats://globex:two@"+host)}
	worker := p.start("tenants", "work")
	p.wait(p.start("tenants", "place", "acme", "A-1", "A-2"))
	p.wait(p.start("tenants", "place", "globex", "A-1")) // the same key in another ledger
	const done = `select from taskledger.event where type = 'succeeded' and kind = 'order.mail' having count(*) = `
	awaitRow(t, acme, done+"2")
	awaitRow(t, globex, done+"1")
	p.stop(worker)
	log := worker.Stderr.(*strings.Builder).String()
	for _, want := range []string{"mail of acme about order A-2 of acme", "mail of globex about order A-1 of globex"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
}
