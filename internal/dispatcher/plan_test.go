package dispatcher_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/servicetest"
)

// The dispatcher's statements use indexes even while the tables are new and have no statistics. Plans made then are
// still used after the tables have grown.
func TestPlansWhileTablesAreNew(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	b.EnqueueMany(20)
	b.Project()
	for name, args := range map[string]string{
		"heads":    `'{"test.order"}', '{"o-0001"}', 512`,
		"hinted":   `'{1,2}', '1:1:', 512`,
		"listed":   `'{"test.order"}', '{3}', '{""}', '{0}', '{100}', '{"test.order"}', '{3}', '{""}', '{100}'`,
		"permits":  `'{"test.order"}'`,
		"unlisted": `'1:1:', 0, '1', 0, 100, '{"test.order"}', '{3}', '{0}'`,
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			conn := servicetest.Try(pgx.ConnectConfig(b.Context(), b.As("relay").Config().ConnConfig))(t)
			tx := servicetest.Try(conn.Begin(b.Context()))(t)
			text := servicetest.Try(os.ReadFile(filepath.Join("sql", name+".sql")))(t)
			servicetest.Try(tx.Exec(b.Context(), "set local plan_cache_mode = "+mode))(t)
			servicetest.Try(tx.Exec(b.Context(), "prepare statement as "+string(text)))(t)
			rows := servicetest.Try(tx.Query(b.Context(), "explain execute statement("+args+")"))(t)
			plan := strings.Join(servicetest.Try(pgx.CollectRows(rows, pgx.RowTo[string]))(t), "\n")
			if strings.Contains(plan, "Seq Scan on event") || strings.Contains(plan, "Seq Scan on task") {
				t.Errorf("%s, %s: %s", name, mode, plan)
			}
			if name == "listed" && !strings.Contains(plan, "Index Scan using task_next") {
				t.Errorf("%s, %s: %s", name, mode, plan)
			}
			if err := conn.Close(b.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
