package lease

import (
	"context"
	_ "embed"
	"encoding/json"
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
)

// Broker is the NATS server of a database.
type Broker struct {
	Address string `json:"address,omitempty"` // host and port for clients; "" before it runs
	CA      string `json:"ca,omitempty"`      // PEM of the CA of its certificate; "" if it has none
	Nonce   int64  `json:"nonce"`             // the number of the advisory lock that its process holds
}

// TakeBroker takes or renews the lease of the NATS server, and reports whether the holder has it.
func TakeBroker(ctx context.Context, db ledger.DB, holder string, d time.Duration, b Broker) (bool, error) {
	detail, err := json.Marshal(b)
	if err != nil {
		return false, err
	}
	holds := false
	_, err = pgquery.Row(ctx, db, brokerTakeSQL, []any{holder, d.Milliseconds(), string(detail)}, &holds)
	return holds, pgerr.Explain("take the lease of the NATS server", err)
}

// YieldBroker lets another process take the lease of the NATS server at once.
func YieldBroker(ctx context.Context, db ledger.DB, holder string) error {
	_, err := db.Exec(ctx, brokerYieldSQL, holder)
	return pgerr.Explain("yield the lease of the NATS server", err)
}
