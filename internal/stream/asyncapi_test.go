package stream

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/taskledger/taskledger/internal/eventdata"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

var update = flag.Bool("update", false, "rewrite docs/asyncapi.json")

const asyncAPIFile = "../../docs/asyncapi.json"

type object = map[string]any

// headerSchemas has each header of a message: its schema, and whether every message has it.
func headerSchemas() (properties object, required []string) {
	properties = object{}
	add := func(isRequired bool, name, pattern, text string) {
		schema := object{"type": "string", "description": text}
		if pattern != "" {
			schema["pattern"] = pattern
		}
		properties[name] = schema
		if isRequired {
			required = append(required, name)
		}
	}
	add(true, headerSpecVersion, `^1\.0$`, "the version of CloudEvents")
	add(true, headerID, `^[^/ ]+/.+/[0-9]+@-?[0-9]+$`, "<kind>/<biz_id>/<version>@<recorded_at in µs>: unique")
	add(true, headerType, "^"+regexp.QuoteMeta(TypePrefix)+"("+typeNames("|")+")$", "the type of the event")
	add(true, headerSource, "^"+sourcePrefix, "taskledger/<installation>")
	add(true, headerSubject, `^[^/ ]+/.+$`, "<kind>/<biz_id>")
	add(true, headerTime, `Z$`, "the time of its record by the database, RFC 3339 in UTC, to the microsecond")
	add(true, headerTask, `^version=[1-9][0-9]*&attempt=[0-9]+&position=[0-9]+(&.*)?$`,
		"in the form of a URL's query: its version, 1, 2, 3… within the task; its attempt; its position, its number "+
			"in the ledger, which increases along a task; others may follow")
	add(false, headerFinishBy, `Z$`, "beside args: the deadline of the whole task")
	add(false, headerTraceparent, `^[0-9a-f-]+$`, "W3C trace context of the author, or, beside args, of the producer")
	add(false, headerTracestate, ``, "W3C tracestate beside it; not percent-encoded")
	add(false, headerEnvelope, `^\{`, "beside args that were published as a Watermill message: its metadata")
	add(false, nats.ExpectedLastSeqHdr, `^[0-9]+$`, "the sequence of the message before this one on its stream")
	return properties, required
}

func typeNames(separator string) string {
	var names []string
	for _, row := range ledger.Transitions() {
		names = append(names, string(row.Type))
	}
	return strings.Join(names, separator)
}

// payload describes the body of a type of event.
func payload(t ledger.EventType) object {
	data := eventdata.Of(t)
	if data == nil {
		return object{"description": "The args of the task, as its producer gave them: JSON, or the bytes of a " +
			"Watermill message."}
	}
	schema := schemaOf(reflect.TypeOf(data))
	schema["description"] = "The data of the event; empty if it has none. Other members may be added."
	return schema
}

// schemaOf returns the JSON Schema of a Go type of package eventdata.
func schemaOf(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{"description": "any JSON"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Struct:
		properties, required := object{}, []string{}
		addMembers(t, properties, &required)
		schema := object{"type": "object", "properties": properties}
		if len(required) > 0 {
			schema["required"] = required
		}
		return schema
	}
	panic("no schema for " + t.String())
}

// addMembers adds the members of a struct. Those of an embedded pointer are optional.
func addMembers(t reflect.Type, properties object, required *[]string) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && field.Type.Kind() == reflect.Pointer:
			addMembers(field.Type.Elem(), properties, new([]string))
		case field.Anonymous:
			addMembers(field.Type, properties, required)
		default:
			properties[name] = schemaOf(field.Type)
			if !strings.Contains(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}

// asyncAPI returns the document: a channel for each type of event on the ledger's stream, and those of a served
// subscriber, which have the same messages.
func asyncAPI() object {
	properties, required := headerSchemas()
	ref := func(path string) object { return object{"$ref": "#/" + path} }
	channels, operations, messages := object{}, object{}, object{}
	parameters := object{
		"shard": object{"description": "0 to 63"},
		"kind":  object{"description": "the kind of the task, with its dots"},
	}
	for _, row := range ledger.Transitions() {
		name := string(row.Type)
		messages[name] = object{
			"name": TypePrefix + name, "title": "A task is " + string(row.To) + " after " + name,
			"headers": ref("components/schemas/headers"), "payload": payload(row.Type),
		}
		for channel, address := range map[string]string{
			name:                  Pattern("{shard}", name, "{kind}"),
			"bookkeeping_" + name: Pattern("{shard}", name, reserved.KindPrefix+"{kind}"),
			"served_" + name:      "subscriber.{subscriber}.{shard}." + name + ".{kind}",
		} {
			c := object{"address": address, "parameters": parameters,
				"messages": object{name: ref("components/messages/" + name)}}
			if strings.Contains(address, "{subscriber}") {
				c["parameters"] = object{"subscriber": object{"description": "the name of a served subscriber"},
					"shard": parameters["shard"], "kind": parameters["kind"]}
			}
			channels[channel] = c
			operations["send_"+channel] = object{"action": "send", "channel": ref("channels/" + channel),
				"summary": "The relay sends " + name + " events; subscribers receive them."}
		}
	}
	return object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "Events of a task ledger", "version": "1.0.0",
			"description": "CloudEvents 1.0 in the binary mode of the NATS binding, on the JetStream stream " + Name +
				". Values of headers are percent-encoded. See docs/events.md.",
		},
		"defaultContentType": "application/json",
		"channels":           channels, "operations": operations,
		"components": object{
			"messages": messages,
			"schemas":  object{"headers": object{"type": "object", "properties": properties, "required": required}},
		},
	}
}

func decodeJSON(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// docs/asyncapi.json is generated from the headers, subjects and types of this package and package ledger, and valid by
// the schema of AsyncAPI 3.0.0 (npm's @asyncapi/specs 6.11.1, schemas/3.0.0.json).
func TestAsyncAPI(t *testing.T) {
	t.Parallel()
	want, err := json.MarshalIndent(asyncAPI(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(asyncAPIFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(asyncAPIFile)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("docs/asyncapi.json differs: go test ./internal/stream -run TestAsyncAPI -update (%v)", err)
	}
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
	if err := schema.Validate(decodeJSON(t, got)); err != nil {
		t.Errorf("it is not valid: %v", err)
	}
	broken := decodeJSON(t, got).(object)
	delete(broken, "info")
	if schema.Validate(broken) == nil {
		t.Error("a document without info is valid")
	}
}

// The messages that Encode makes of every type have the documented headers and no others, on a documented channel.
func TestMessagesAreDocumented(t *testing.T) {
	t.Parallel()
	properties, required := headerSchemas()
	text, err := json.Marshal(object{"type": "object", "properties": properties, "required": required,
		"additionalProperties": false})
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("headers.json", decodeJSON(t, text)); err != nil {
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
			m := Encode(e, nil, Source("x"))
			Expect([]*nats.Msg{m}, 1)
			Enclose(m, []byte(`{"finish_by":"2030-01-01T00:00:00Z","watermill":{"uuid":"1"}}`))
			headers := object{}
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
			address := asyncAPI()["channels"].(object)[channel].(object)["address"].(string)
			pattern := strings.NewReplacer(`\{shard\}`, "5", `\{kind\}`, "[a-z.]+").Replace(regexp.QuoteMeta(address))
			if !regexp.MustCompile("^" + pattern + "$").MatchString(m.Subject) {
				t.Errorf("%s is not on a documented channel: %s", m.Subject, address)
			}
		}
	}
}
