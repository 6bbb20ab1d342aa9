package strictjson_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/taskledger/taskledger/internal/strictjson"
)

type Base struct {
	ID int `json:"id"`
}

type value struct {
	Base
	Text  string            `json:"text"`
	Raw   json.RawMessage   `json:"raw"`
	List  []*Base           `json:"list"`
	Map   map[string]string `json:"map"`
	Plain int
	None  int `json:"-"`
}

// A text that another program could read differently is refused at every depth. encoding/json accepts each of them.
func TestUnmarshalRefusesAmbiguousText(t *testing.T) {
	for text, field := range map[string]string{
		`{"ID":1}`:                           "ID",
		`{"id":1,"Id":2}`:                    "Id",
		`{"id":1,"id":1}`:                    "id",
		`{"id":1,"\u0069d":1}`:               "id",
		`{"other":1}`:                        "other",
		`{"None":1}`:                         "None",
		`{"-":1}`:                            "-",
		`{"plain":1}`:                        "plain",
		`{"list":[{"id":1},{"iD":1}]}`:       "list[1].iD",
		`{"list":[null,{"id":1,"id":2}]}`:    "list[1].id",
		`{"map":{"a":"b","a":"b"}}`:          "map.a",
		`{"text":"\ud800"}`:                  "text",
		`{"text":"a\\\ud83dx"}`:              "text",
		`{"text":"\udca1\ud83d"}`:            "text",
		`{"map":{"a":"\ud83d\ud83d\ude00"}}`: "map.a",
		"{\"text\":\"\xff\"}":                "",
	} {
		if err := json.Unmarshal([]byte(text), new(value)); err != nil {
			t.Errorf("%s: encoding/json returned %v", text, err)
		}
		err := strictjson.Unmarshal([]byte(text), new(value))
		if wrong := new(strictjson.Error); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: got %v, want an error of %q", text, err, field)
		}
	}
}

func TestUnmarshal(t *testing.T) {
	var v value
	text := `{"id":1,"text":"\ud83d\ude00\\ud800","raw":{"a":1,"A":2,"a":3},"list":[{"id":2}],` +
		`"map":{"a":"b","A":"c"},"Plain":3}`
	if err := strictjson.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	if v.ID != 1 || v.Text != `😀\ud800` || string(v.Raw) != `{"a":1,"A":2,"a":3}` || v.List[0].ID != 2 ||
		len(v.Map) != 2 || v.Plain != 3 {
		t.Errorf("got %+v", v)
	}
	for _, text := range []string{``, `{`, `{"id":1`, `{"id":}`, `{"id":"1"}`, `[1]`, `{"list":{"id":1}}`, `{} {}`} {
		err := strictjson.Unmarshal([]byte(text), new(value))
		if wrong := new(strictjson.Error); err == nil || errors.As(err, &wrong) {
			t.Errorf("%s: got %v, want the error of encoding/json", text, err)
		}
	}
}

func TestMember(t *testing.T) {
	for text, want := range map[string]string{
		`{"error":{"message":"a","Message":"b"}}`: `"a"`,
		`{"error":{"Message":"b"}}`:               ``,
		`{"error":{"message":1,"message":2}}`:     `2`,
		`{"Error":{"message":"b"}}`:               ``,
		`{"error":"text"}`:                        ``,
		`[]`:                                      ``,
		``:                                        ``,
	} {
		if got := strictjson.Member([]byte(text), "error", "message"); string(got) != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// Unmarshal accepts a part of the texts that encoding/json accepts, and reads them as it does.
func FuzzUnmarshal(f *testing.F) {
	for _, text := range []string{
		`{"id":1,"list":[{"id":2}]}`, `{"text":"\ud83d\ude00"}`, `{"Plain":1,"raw":[{}]}`, `{"`, `"\u`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var strict, lenient value
		err := strictjson.Unmarshal(text, &strict)
		lenientErr := json.Unmarshal(text, &lenient)
		if err == nil && lenientErr != nil {
			t.Fatalf("accepted although encoding/json returns %v", lenientErr)
		}
		a, _ := json.Marshal(strict)
		b, _ := json.Marshal(lenient)
		if err == nil && string(a) != string(b) {
			t.Fatalf("read %s, encoding/json %s", a, b)
		}
	})
}
