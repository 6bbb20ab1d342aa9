package periodic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// The second call changes only the schedule that differs.
func ExampleApply() {
	db, done := ledgertest.Example("operator")
	defer done()
	ctx := context.Background()

	schedules := []periodic.Schedule{
		{
			Name: "nightly-report", Kind: "report.make", Args: json.RawMessage(`{"of":"sales"}`),
			Cron: "30 2 * * *", Zone: "Europe/Berlin",
		},
		{Name: "heartbeat", Kind: "probe.run", Every: 15 * time.Minute},
	}
	for range 2 {
		differences, err := periodic.Apply(ctx, db, schedules, &periodic.ApplyOptions{Actor: "deployment"})
		if err != nil {
			panic(err)
		}
		for _, d := range differences {
			fmt.Println(d.Action, d.Name)
			if d.Action == periodic.Change {
				fmt.Printf("  %+v\n", d.Fields)
			}
		}
		schedules[1].Every = 5 * time.Minute
	}
	// Output:
	// create heartbeat
	// create nightly-report
	// change heartbeat
	//   [{Name:every From:15m To:5m}]
	// keep nightly-report
}

// Firings become tasks while a runner runs, in this process or in taskledger serve.
func ExampleRun() {
	db, done := ledgertest.Example("relay", "operator")
	defer done()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	sync := periodic.Schedule{Name: "sync", Kind: "crm.sync", FixedDelay: time.Hour}
	if _, err := periodic.Apply(ctx, db, []periodic.Schedule{sync}, nil); err != nil {
		panic(err)
	}
	go func() {
		defer stop()
		for ctx.Err() == nil {
			if s, err := periodic.Load(ctx, db, "sync"); err != nil || s.LastTask != nil {
				fmt.Println("fired:", s.LastTask.Kind, s.NextAt.IsZero())
				return
			}
		}
	}()
	if err := periodic.Run(ctx, db, nil); err != nil {
		panic(err)
	}
	// Output: fired: crm.sync true
}

// A manual run is not a firing.
func ExampleRunNow() {
	db, done := ledgertest.Example("operator")
	defer done()
	ctx := context.Background()

	report := periodic.Schedule{Name: "nightly-report", Kind: "report.make", Cron: "@daily"}
	if _, err := periodic.Apply(ctx, db, []periodic.Schedule{report}, nil); err != nil {
		panic(err)
	}
	task, err := periodic.RunNow(ctx, db, "nightly-report", "alice", "")
	if err != nil {
		panic(err)
	}
	fmt.Println(task.New, task.State)
	// Output: true available
}
