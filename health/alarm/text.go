package alarm

import "github.com/taskledger/taskledger/internal/printable"

// formatTasks returns a number of tasks in words.
func formatTasks(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return printable.Count(n) + " tasks"
}
