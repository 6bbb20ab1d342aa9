package stream

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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
			name:                  None.Pattern("{shard}", name, "{kind}"),
			"bookkeeping_" + name: None.Pattern("{shard}", name, reserved.KindPrefix+"{kind}"),
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

// docs/asyncapi.json is generated from the headers, subjects and types of this package and package ledger.
// TestAsyncAPIIsValid in internal/systemtest validates it.
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
}
