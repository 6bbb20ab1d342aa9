package console

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger/periodic"
)

// Common rules of schedules are shown in words, others as they are written.
func TestRulesInWords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rule periodic.Schedule
		want string
	}{
		{periodic.Schedule{Cron: "30 2 * * *", Zone: "Europe/Berlin"}, "every day at 02:30 Europe/Berlin"},
		{periodic.Schedule{Cron: "@hourly"}, "every hour UTC"},
		{periodic.Schedule{Cron: "0 * * * *"}, "every hour UTC"},
		{periodic.Schedule{Cron: "15 * * * *"}, "every hour at 15 past UTC"},
		{periodic.Schedule{Cron: "*/10 * * * *"}, "every 10 minutes UTC"},
		{periodic.Schedule{Cron: "0 8 * * 1"}, "every Monday at 08:00 UTC"},
		{periodic.Schedule{Cron: "0 8 * * 1-5"}, "Monday to Friday at 08:00 UTC"},
		{periodic.Schedule{Cron: "0 8 1 * *"}, "on day 1 of each month at 08:00 UTC"},
		{periodic.Schedule{Every: time.Minute}, "every minute"},
		{periodic.Schedule{Every: 90 * time.Minute}, "every 90 minutes"},
		{periodic.Schedule{FixedDelay: 5 * time.Second}, "5 seconds after the previous task"},
	} {
		if got := (scheduleView{Status: periodic.Status{Schedule: test.rule}}).When(); got != test.want {
			t.Errorf("%v is %q, want %q", test.rule, got, test.want)
		}
	}
	for _, cron := range []string{"0 8 1 1 *", "5,10 * * * *", "0 */2 * * *", "x"} {
		if got := cronInWords(cron); got != "" {
			t.Errorf("%s is %q", cron, got)
		}
	}
}
