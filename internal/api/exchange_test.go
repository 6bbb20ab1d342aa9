package api_test

import (
	"encoding/json"
	"net/http"
	"os"
	"sync"
	"testing"
)

// exchangesVariable is the environment variable with the name of a file to which the tests append every exchange. The
// module internal/systemtest reads it: the modules that check OpenAPI are not among those of the product.
const exchangesVariable = "TASKLEDGER_API_EXCHANGES"

// exchange is a request and its answer.
type exchange struct {
	Test    string      `json:"test"`
	Method  string      `json:"method"`
	URL     string      `json:"url"`
	Request http.Header `json:"request"`
	Status  int         `json:"status"`
	Header  http.Header `json:"header"`
	Body    []byte      `json:"body"`
}

var recording sync.Mutex

// record appends an exchange to the file, if there is one.
func record(t testing.TB, r *http.Request, a answer) {
	t.Helper()
	name := os.Getenv(exchangesVariable)
	if name == "" {
		return
	}
	line, err := json.Marshal(exchange{t.Name(), r.Method, r.URL.RequestURI(), r.Header, a.status, a.header, a.body})
	if err != nil {
		t.Fatal(err)
	}
	recording.Lock()
	defer recording.Unlock()
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
