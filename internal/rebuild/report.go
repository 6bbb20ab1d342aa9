package rebuild

import "fmt"

// Report is the outcome of a verification.
type Report struct {
	Events      int64        `json:"events"`         // applied by the projection, and folded here
	Tasks       int64        `json:"tasks"`          // of these events; 0 of a subscriber
	Rows        int64        `json:"rows,omitempty"` // of a subscriber: rows that were compared
	Different   int64        `json:"different"`      // the number of differences
	Differences []Difference `json:"differences"`    // the first 100
}

// Equal reports whether the tables equal the events.
func (r Report) Equal() bool { return r.Different == 0 }

// Difference is one place where tables and events differ.
type Difference struct {
	// Subject is a task's key and column, "count of <kind> <state>", or "statistics of <kind> <minute>". Of a
	// subscriber it is a table and the primary key of a row as JSON.
	Subject string `json:"subject"`
	Table   string `json:"table"`  // the value in the table; empty: no such row
	Events  string `json:"events"` // the value by the events
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: table has %q, events have %q", d.Subject, d.Table, d.Events)
}

const maxDifferences = 100

// Compare adds a difference if two values are not equal.
func (r *Report) Compare(subject, table, events string) {
	if table == events {
		return
	}
	if r.Different++; len(r.Differences) < maxDifferences {
		r.Differences = append(r.Differences, Difference{subject, table, events})
	}
}
