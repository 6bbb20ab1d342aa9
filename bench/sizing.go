package main

import (
	"fmt"
	"strings"
)

// size is a row of the table of sizes: figures in a sentence, each a median.
type size struct {
	need, text, limit string
	figures           []figureName
}

// figureName names a figure.
type figureName struct{ measure, system, metric string }

var sizes = []size{
	{"enqueues in your own transactions", "%s/s by 32 connections", "PostgreSQL's commits",
		[]figureName{{"enqueue-32", ours, rate}}},
	{"… with fewer connections", "%s/s by one connection, %s/s by 8", "PostgreSQL's commits",
		[]figureName{{"enqueue-1", ours, rate}, {"enqueue-8", ours, rate}}},
	{"… whose business insert returns a value", "%s/s by 32 connections", "PostgreSQL's commits",
		[]figureName{{"enqueue-32", oursExec, rate}}},
	{"enqueues in bulk", "%s tasks/s", "PostgreSQL", []figureName{{"bulk", ours, rate}}},
	{"tasks with an effect in PostgreSQL (ExactlyOnce)", "%s/s; %s/s with `Together`", "PostgreSQL's commits",
		[]figureName{{"exactly-once", ours, rate}, {"exactly-once", oursTogether, rate}}},
	{"tasks whose handler does nothing, relay included", "%s/s", "CPU", []figureName{{"drain", oursFromCommit, rate}}},
	{"events to subscribers", "%s/s", "CPU", []figureName{{"relay", ours, rate}}},
	{"… with three NATS servers", "%s/s", "CPU", []figureName{{"relay", oursReplicated, rate}}},
	{"… if NATS syncs each write", "%s/s", "NATS's disk", []figureName{{"relay-fsync", ours, rate}}},
	{"the relay's memory behind 1,000,000 events", "%s MB", "", []figureName{{"memory", behindWhole, "relay memory"}}},
	{"a finished task on disk: database; stream", "%s bytes; %s bytes",
		"disk; the stream has an age limit",
		[]figureName{{"cost", ours, "database per task"}, {"cost", ours, "stream per task"}}},
	{"a task's WAL over its whole life", "%s bytes", "disk, replicas, archive",
		[]figureName{{"cost", ours, walPerTask}}},
	{"a task's CPU in a backlog of 1,000,000: PostgreSQL; NATS; services, workers and producer",
		"%s µs; %s µs; %s µs", "CPU",
		[]figureName{{"cost", ours, "CPU of PostgreSQL per task"}, {"cost", ours, "CPU of NATS per task"},
			{"cost", ours, "CPU of the client per task"}}},
}

// sizeRows returns a row for each size, measured or not.
func sizeRows(r *report) string {
	var rows [][]string
	for _, x := range sizes {
		var medians []any
		for _, f := range x.figures {
			if value, ok := r.median(f.measure, f.system, f.metric); ok {
				medians = append(medians, grouped(value))
			}
		}
		gave := notMeasured
		if len(medians) == len(x.figures) {
			gave = fmt.Sprintf(x.text, medians...)
		}
		rows = append(rows, []string{x.need, gave, x.limit})
	}
	return markdown([]string{"you need", "two cores reached", "the limit"}, rows)
}

// sizeInBytes returns the bytes of a million tasks.
func sizeInBytes(r *report) string {
	var parts []string
	for _, x := range []struct{ metric, of string }{
		{"database per task", "in the database"}, {"stream per task", "on the stream"}, {walPerTask, "of WAL"},
	} {
		if bytes, ok := r.median("cost", ours, x.metric); ok {
			parts = append(parts, fmt.Sprintf("%s GB %s", threeDigits(bytes/1e3), x.of))
		}
	}
	if parts == nil {
		return ""
	}
	return fmt.Sprintf("- **A million tasks**: %s, with args of %d bytes and keys of %d. Larger ones add to this.\n",
		strings.Join(parts, ", "), len(args), len(kind.Name())+len(taskID(0)))
}
