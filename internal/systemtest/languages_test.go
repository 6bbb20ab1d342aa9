package systemtest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var (
	sqlBlock  = regexp.MustCompile("(?s)```sql\n(.*?)```")
	pythonSQL = regexp.MustCompile(`db\.execute\("([^"]+)"`)
)

// The SQL of docs/languages.md works in its order, with the rights of producers and workers. The statements of
// examples/work/sql.py are valid.
func TestDocumentedSQL(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/languages.md")
	if err != nil {
		t.Fatal(err)
	}
	owner := ledgertest.Pool(t)
	db := ledgertest.As(t, owner, ledgertest.App)
	const tables = "create table coupon (order_no text, cents integer); " +
		"create table coupon_sent (order_no text, cents integer)"
	if _, err := db.Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	blocks := sqlBlock.FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		for statement := range strings.SplitSeq(block[1], ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			tag, err := conn.Exec(t.Context(), statement)
			isEmpty := tag.Select() && tag.RowsAffected() == 0 && !strings.Contains(statement, "claim_next")
			if err != nil || isEmpty { // nothing is projected here
				t.Fatalf("%s: %v, %s", statement, err, tag)
			}
		}
	}
	const states = `select string_agg(type::text, ' ' order by biz_id, version) from taskledger.event`
	const want = "enqueued started succeeded enqueued started failed enqueued started snoozed"
	var got string
	if err := conn.QueryRow(t.Context(), states).Scan(&got); err != nil || got != want {
		t.Errorf("events: %s, %v, want %s", got, err, want)
	}
	program, err := os.ReadFile("../../examples/work/sql.py")
	if err != nil {
		t.Fatal(err)
	}
	statements := pythonSQL.FindAllStringSubmatch(string(program), -1)
	for _, m := range statements {
		n := 0
		statement := regexp.MustCompile("%s").ReplaceAllStringFunc(m[1], func(string) string {
			n++
			return "$" + string(rune('0'+n))
		})
		if _, err := conn.Prepare(t.Context(), "", statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if len(blocks) < 6 || len(statements) < 5 {
		t.Errorf("%d blocks of SQL and %d statements in Python were found", len(blocks), len(statements))
	}
}
