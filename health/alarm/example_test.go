package alarm_test

import (
	"crypto/hmac"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/health/alarm"
)

// A receiver of webhooks checks the signature and the age of a request.
func ExampleSign() {
	secret, now := "key", time.Unix(1700000030, 0)
	body := []byte(`{"alarm":"chat/0000000000000000017"}`)
	header := alarm.Sign(secret, time.Unix(1700000000, 0), body) // of the request

	seconds, _, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",")
	sent, err := strconv.ParseInt(seconds, 10, 64)
	genuine := err == nil && hmac.Equal([]byte(header), []byte(alarm.Sign(secret, time.Unix(sent, 0), body)))
	fmt.Println(genuine, now.Sub(time.Unix(sent, 0)) < 5*time.Minute)
	// Output: true true
}

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
