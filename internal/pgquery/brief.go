package pgquery

import "github.com/jackc/pgx/v5"

// Brief are the options of a READ COMMITTED transaction of a service that holds what other processes wait for. The
// server ends it if the process sends nothing for ten seconds, for example because it is stopped.
var Brief = pgx.TxOptions{BeginQuery: "begin isolation level read committed; " +
	"set local idle_in_transaction_session_timeout to '10s'"}
