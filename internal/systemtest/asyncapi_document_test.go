package systemtest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

func decodeJSON(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// readAsyncAPI returns docs/asyncapi.json, which TestAsyncAPI of internal/stream generates.
func readAsyncAPI(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../docs/asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	return decodeJSON(t, text).(map[string]any)
}

// docs/asyncapi.json is valid by the schema of AsyncAPI 3.0.0 (npm's @asyncapi/specs 6.11.1, schemas/3.0.0.json).
func TestAsyncAPIIsValid(t *testing.T) {
	t.Parallel()
	compressed, err := os.Open("testdata/asyncapi-3.0.0.schema.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer compressed.Close()
	text, err := gzip.NewReader(compressed)
	if err != nil {
		t.Fatal(err)
	}
	official, err := jsonschema.UnmarshalJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("asyncapi.json", official); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(readAsyncAPI(t)); err != nil {
		t.Errorf("it is not valid: %v", err)
	}
	broken := readAsyncAPI(t)
	delete(broken, "info")
	if schema.Validate(broken) == nil {
		t.Error("a document without info is valid")
	}
}

// The messages that package stream makes of every type have the documented headers and no others, on a documented
// channel.
func TestMessagesAreDocumented(t *testing.T) {
	t.Parallel()
	document := readAsyncAPI(t)
	member := func(value any, names ...string) any {
		for _, name := range names {
			value = value.(map[string]any)[name]
		}
		return value
	}
	headers := member(document, "components", "schemas", "headers").(map[string]any)
	headers["additionalProperties"] = false
	c := jsonschema.NewCompiler()
	if err := c.AddResource("headers.json", headers); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("headers.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range ledger.Transitions() {
		for _, kind := range []ledger.Kind{"coupon.send", "taskledger.operation"} {
			e := ledger.Event{Key: ledger.Key{Kind: kind, BizID: "Bestellung ä/1"}, Version: 2, Attempt: 1,
				Position: 17, Shard: 5, Type: row.Type, RecordedAt: time.UnixMicro(1_700_000_000_123_456),
				Meta: json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` +
					`"tracestate":"a=b"}`)}
			m := stream.Encode(e, nil, stream.Source("x"))
			stream.Expect([]*nats.Msg{m}, 1)
			stream.Enclose(m, []byte(`{"finish_by":"2030-01-01T00:00:00Z","watermill":{"uuid":"1"}}`))
			headers := map[string]any{}
			for name, values := range m.Header {
				headers[name] = values[0]
			}
			if err := schema.Validate(headers); err != nil {
				t.Errorf("%s of %s: %v", row.Type, kind, err)
			}
			channel := string(row.Type)
			if kind != "coupon.send" {
				channel = "bookkeeping_" + channel
			}
			address := member(document, "channels", channel, "address").(string)
			pattern := strings.NewReplacer(`\{shard\}`, "5", `\{kind\}`, "[a-z.]+").Replace(regexp.QuoteMeta(address))
			if !regexp.MustCompile("^" + pattern + "$").MatchString(m.Subject) {
				t.Errorf("%s is not on a documented channel: %s", m.Subject, address)
			}
		}
	}
}
