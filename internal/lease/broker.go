package lease

import (
	"context"
	_ "embed"
	"encoding/json"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/broker_take.sql
	brokerTakeSQL string
	//go:embed sql/broker_yield.sql
	brokerYieldSQL string
	//go:embed sql/broker_others.sql
	brokerOthersSQL string
)

// Broker is a NATS server of a database.
type Broker struct {
	Address string `json:"address,omitempty"` // host and port for clients; "" before it runs
	CA      string `json:"ca,omitempty"`      // PEM of the CA of its certificate; "" if it has none
	Nonce   int64  `json:"nonce"`             // the number of the advisory lock that its process holds
	Peers   string `json:"peers,omitempty"`   // all members of its cluster; "" if it is alone
	Asleep  bool   `json:"asleep,omitempty"`  // it runs without a session until a message wakes its process
}

// TakeBroker takes or renews the lease of a member of a cluster. With member "", it is the lease of a single server. It
// reports whether the holder holds it.
func TakeBroker(ctx context.Context, db ledger.DB, member, holder string, d time.Duration, b Broker) (bool, error) {
	detail, err := json.Marshal(b)
	if err != nil {
		return false, err
	}
	holds := false
	_, err = pgquery.Row(ctx, db, brokerTakeSQL,
		[]any{member, holder, d.Milliseconds(), string(detail), b.Peers}, &holds)
	return holds, pgerr.Explain("take the lease of the NATS server", err)
}

// YieldBroker lets another process take the lease of TakeBroker at once.
func YieldBroker(ctx context.Context, db ledger.DB, member, holder string) error {
	_, err := db.Exec(ctx, brokerYieldSQL, member, holder)
	return pgerr.Explain("yield the lease of the NATS server", err)
}

// BrokerWithOtherPeers returns the holder and the peers of a server that runs with different peers, or "". With isAny,
// it includes a server that no client may use because most of its peers are unavailable.
func BrokerWithOtherPeers(ctx context.Context, db ledger.DB, peers string, isAny bool) (
	holder, others string, err error) {
	_, err = pgquery.Row(ctx, db, brokerOthersSQL, []any{peers, strconv.FormatBool(isAny)}, &holder, &others)
	return holder, others, pgerr.Explain("read the leases of NATS servers", err)
}
