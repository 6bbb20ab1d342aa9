package api

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
)

// All pages together contain each event of an archived task once and in order, also if its key was archived twice: then
// the second run begins with version 1, too.
func TestPagesOfAnArchivedTask(t *testing.T) {
	t.Parallel()
	versions := []ledger.Version{1, 2, 3, 1, 4, 5, 6, 1, 7, 8}
	events := make([]ledger.Event, len(versions))
	for i, v := range versions {
		events[i].Version, events[i].Position = v, ledger.Position(i+1)
	}
	for limit := 1; limit <= len(events)+1; limit++ {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			var got []ledger.Event
			for after, pages := 0, 0; ; pages++ {
				page := pageOf(events, int64(after), limit)
				got = append(got, page.Items...)
				if page.Next == "" || pages > len(events) {
					break
				}
				var err error
				if after, err = strconv.Atoi(page.Next); err != nil {
					t.Fatal(err)
				}
			}
			if diff := difference.Of(events, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
