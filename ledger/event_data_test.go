package ledger_test

import (
	"encoding/json"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// The members of an event's data have exact names, as for a reader in SQL or in another language.
func TestDataHaveExactNames(t *testing.T) {
	k := ledger.Key{Kind: "test.a", BizID: "1"}
	buried := ledger.Event{Key: k, Type: ledger.EventBuried, Data: json.RawMessage(
		`{"error":{"message":"m","Message":"forged","type":"t","fingerprint":"00000000000000aa",` +
			`"FINGERPRINT":"00000000000000ff"},"Error":{"message":"forged"}}`)}
	if text, print := buried.ErrorText(), buried.ErrorFingerprint(); text != "m" || print != "00000000000000aa" {
		t.Errorf("got the error %q with the fingerprint %s", text, print)
	}
	buried.Data = json.RawMessage(`{"Reason":"forged","Error":{"Message":"forged"}}`)
	if text := buried.ErrorText(); text != "" {
		t.Errorf("got the error %q of a member with another name", text)
	}
	task, err := ledger.Fold([]ledger.Event{
		{Key: k, Version: 1, Type: ledger.EventEnqueued},
		{Key: k, Version: 2, Attempt: 1, Type: ledger.EventSucceeded, Data: json.RawMessage(`{"result":1,"RESULT":2}`)},
	})
	if err != nil || string(task.Result) != "1" {
		t.Errorf("got the result %s, %v", task.Result, err)
	}
}
