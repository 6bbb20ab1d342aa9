package alarm

import (
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

// age is a duration for people.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// tasks is a number of tasks in words.
func tasks(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return printable.Count(n) + " tasks"
}
