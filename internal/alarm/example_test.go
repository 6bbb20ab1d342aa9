package alarm_test

import (
	"fmt"

	"github.com/taskledger/taskledger/internal/alarm"
)

func ExampleParse() {
	f, err := alarm.Parse([]byte(`{
		"kinds": [{"kind": "coupon.send", "dead_over": 100, "waiting_over": "10m"}],
		"receivers": [{"name": "pager", "command": ["/usr/local/bin/page", "--team", "ledger"]}]
	}`))
	fmt.Println(len(f.Receivers), f.Rules.Kinds[0].WaitingOver, err)
	_, err = alarm.Parse([]byte(`{"every": "soon", "receivers": []}`))
	fmt.Println(err)
	// Output:
	// 1 10m0s <nil>
	// invalid every: must be a duration such as 90s or 4h
}
