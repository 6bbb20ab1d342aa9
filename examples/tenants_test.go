package examples_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// Two tenants have a ledger each, behind one NATS server with an account each, or with a prefix each in one account.
// Each order is worked on in its tenant's database alone.
func TestTenants(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Accounts: `accounts {
		acme: { jetstream: enabled, users: [{user: acme, password: one}] }
		globex: { jetstream: enabled, users: [{user: globex, password: two}] }
		shared: { jetstream: enabled, users: [{user: shared, password: three}] }
	}`})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	address, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	bin, host := build(t), address.Host
	for _, test := range []struct {
		name         string
		acme, globex tenantNATS
	}{
		{
			name: "accounts",
			acme: tenantNATS{url: "nats://acme:one@" + host}, globex: tenantNATS{url: "nats://globex:two@" + host},
		},
		{
			name:   "prefixes",
			acme:   tenantNATS{url: "nats://shared:three@" + host, prefix: "acme"},
			globex: tenantNATS{url: "nats://shared:three@" + host, prefix: "globex"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			testTenants(t, bin, test.acme, test.globex)
		})
	}
}

// tenantNATS is where a tenant's ledger is on NATS.
type tenantNATS struct{ url, prefix string }

func (n tenantNATS) String() string { return strings.TrimSuffix(n.url+","+n.prefix, ",") }

func testTenants(t *testing.T, bin string, onAcme, onGlobex tenantNATS) {
	t.Helper()
	acme, globex := ledgertest.Pool(t), ledgertest.Pool(t)
	serve(t, ledgertest.As(t, acme, "relay"), onAcme.url, outbox.NATSPrefix(onAcme.prefix))
	serve(t, ledgertest.As(t, globex, "relay"), onGlobex.url, outbox.NATSPrefix(onGlobex.prefix))
	p := programs{t: t, bin: bin, env: append(os.Environ(), "NATS_URL=",
		"TENANTS=acme="+acme.Config().ConnString()+","+onAcme.String()+
			" globex="+globex.Config().ConnString()+","+onGlobex.String())}
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
