package ledger_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// BenchmarkStarts records groups of 50 starts and their ends, of a kind without and with a limit. An operation is a
// task.
func BenchmarkStarts(b *testing.B) {
	for _, limit := range []int{0, 50, 100, 1000} {
		b.Run(fmt.Sprint("limit ", limit), func(b *testing.B) {
			db := ledgertest.Pool(b, ledgertest.App, "relay", "operator")
			if limit > 0 {
				limitConcurrency(b, db, limit)
			}
			var entries []ledger.Entry
			for i := range b.N + 50 {
				entries = append(entries, ledger.Entry{Key: gatedKey(i)})
			}
			for i := 0; i < len(entries); i += 1000 {
				if _, err := ledger.EnqueueMany(b.Context(), db, entries[i:min(len(entries), i+1000)]); err != nil {
					b.Fatal(err)
				}
			}
			conn, err := db.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Release()
			cpu := backendCPU(b, conn.Conn())
			b.ResetTimer()
			for i := 0; i < b.N; i += 50 {
				for version, event := range []ledger.EventType{ledger.EventStarted, ledger.EventSucceeded} {
					var requests []ledger.AppendRequest
					for n := range 50 {
						requests = append(requests, ledger.AppendRequest{
							Key: gatedKey(i + n), Expected: ledger.Version(version + 1), Type: event, Actor: "w",
						})
					}
					for _, r := range ledger.AppendEach(b.Context(), conn, requests) {
						if r.Err != nil {
							b.Fatal(r.Err)
						}
					}
				}
			}
			b.ReportMetric(float64(backendCPU(b, conn.Conn())-cpu)/float64(b.N), "server-ns/op")
		})
	}
}

// backendCPU returns the CPU time in ns of the server process of a connection.
func backendCPU(b *testing.B, conn *pgx.Conn) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", conn.PgConn().PID()))
	if err != nil {
		return 0 // not Linux, or the server of another machine
	}
	first, _, _ := strings.Cut(string(text), " ")
	cpu, _ := strconv.ParseInt(first, 10, 64)
	return cpu
}
