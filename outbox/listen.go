package outbox

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/may_listen.sql
	mayListenSQL string
	//go:embed sql/listen.sql
	listenSQL string
)

// listen has the connection notified when there are events to publish, if notifications can reach it.
func (l *lease) listen(ctx context.Context, conn *pgx.Conn) error {
	var mayListen bool
	if _, err := pgquery.Row(ctx, conn, mayListenSQL, []any{int64(conn.PgConn().PID())}, &mayListen); err != nil {
		return err
	}
	if !mayListen {
		return nil
	}
	if _, err := conn.Exec(ctx, listenSQL); err != nil {
		return err
	}
	l.wake.SetListening(true)
	return nil
}

// forward passes notifications on until ctx is done or the connection is lost.
func (l *lease) forward(ctx context.Context, conn *pgx.Conn) {
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return
		}
		l.wake.Signal()
	}
}
