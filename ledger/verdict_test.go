package ledger_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// sameVerdict checks that SQL accepts args and meta, which are valid JSON, if and only if Go accepts them. It reports
// whether Go accepts them.
func sameVerdict(t *testing.T, pool *pgxpool.Pool, args, meta string) bool {
	t.Helper()
	inGo := ledger.Accepts(json.RawMessage(args), json.RawMessage(meta))
	_, inSQL := pool.Exec(t.Context(), `
		select taskledger.check_nesting('args', $1::text), taskledger.check_nesting('meta', $2::text),
		       taskledger.check_meta($2::text::json, $1::text::json)`, args, meta)
	if inSQL != nil && sqlState(inSQL) != "22023" {
		t.Errorf("args %.80s, meta %.80s: %v", args, meta, inSQL)
	}
	if (inGo == nil) != (inSQL == nil) {
		t.Errorf("args %.80s, meta %.80s: %v in Go, %v in SQL", args, meta, inGo, inSQL)
	}
	return inGo == nil
}

// verdicts are examples of args and meta. want is whether they are valid.
var verdicts = []struct {
	args, meta string
	want       bool
}{
	{`1`, `{}`, true},
	{`1`, `{"traceparent":"00-1-2-01","tracestate":"a=b","causation":"x","tags":["a",""]}`, true},
	{`1`, `{"traceparent":null,"tracestate":null,"causation":null,"tags":null,"encoding":null}`, true},
	{`1`, `{"traceparent":5}`, false},
	{`1`, `{"tracestate":["a"]}`, false},
	{`1`, `{"causation":{}}`, false},
	{`1`, `{"tags":"a"}`, false},
	{`1`, `{"tags":["a",1]}`, false},
	{`1`, `{"tags":["a",null]}`, true},
	{`1`, `{"Traceparent":5,"Tags":5,"Encoding":5}`, true},
	{`1`, `{"\u0074ags":5}`, false},
	{`1`, `{"tags":5,"tags":[]}`, true},
	{`1`, `{"tags":[],"tags":5}`, false},
	{`1`, `{"later":[{"a":1}]}`, true},
	{`1`, `{"a":"\u0000"}`, false},
	{`1`, `{"a":"\\u0000"}`, true},
	{`1`, `{"a":"\\\u0000"}`, false},
	{`1`, `{"a":"\ud83d\ude00"}`, true},
	{`1`, `{"a":"\ud83d"}`, false},
	{`1`, `{"a":"\ud83dx\ude00"}`, false},
	{`1`, `{"a":"\ude00"}`, false},
	{`1`, `{"\u0000":1}`, false},
	{`1`, `{"run_at":"2030-01-01T00:00:00Z"}`, false},
	{`1`, `{"start_by":"2030-01-01T00:00:00Z"}`, false},
	{`1`, `{"finish_by":"2030-01-01T00:00:00Z"}`, false},
	{`1`, `{"run_at":5}`, false},
	{`1`, `{"retry":null}`, true},
	{`1`, `{"retry":{}}`, true},
	{`1`, `{"retry":""}`, false},
	{`1`, `{"retry":"exponential"}`, false},
	{`1`, `{"retry":5}`, false},
	{`1`, `{"retry":[]}`, false},
	{`1`, `{"retry":[60,300]}`, false},
	{`1`, `{"retry":true}`, false},
	{`1`, `{"retry":{"ladder":[60,300,1200],"unit":null,"max":3600,"attempts":10,"jitter":0.2}}`, true},
	{`1`, `{"retry":{"unit":0.1,"max":5400,"attempts":10,"jitter":0.25}}`, true},
	{`1`, `{"retry":{"ladder":[60,300,1200]}}`, true},
	{`1`, `{"retry":{"ladder":[60,300,1200],"attempts":1000000,"jitter":1}}`, true},
	{`1`, `{"retry":{"ladder":[0,0.0,-0,5400.5,1e-4,0.000007,0.0000001],"jitter":0}}`, true},
	{`1`, `{"retry":{"ladder":[]}}`, true},
	{`1`, `{"retry":{"ladder":[],"unit":1}}`, true},
	{`1`, `{"retry":{"ladder":null,"unit":1}}`, true},
	{`1`, `{"retry":{"ladder":[31622400]}}`, true},
	{`1`, `{"retry":{"ladder":[3.16224E+7]}}`, true},
	{`1`, `{"retry":{"ladder":[31622400.0000004]}}`, true},
	{`1`, `{"retry":{"ladder":[31622400.000001]}}`, false},
	{`1`, `{"retry":{"ladder":[1e30]}}`, false},
	{`1`, `{"retry":{"ladder":[1e400]}}`, false},
	{`1`, `{"retry":{"ladder":[-1e400]}}`, false},
	{`1`, `{"retry":{"ladder":[1e-400]}}`, false},
	{`1`, `{"retry":{"ladder":[0e-99999,0e99999]}}`, true},
	{`1`, `{"retry":{"ladder":[1e-20000]}}`, false},
	{`1`, `{"retry":{"ladder":[60,-1]}}`, false},
	{`1`, `{"retry":{"ladder":[60,-0.0000001]}}`, true},
	{`1`, `{"retry":{"ladder":[60,null]}}`, false},
	{`1`, `{"retry":{"ladder":[60,"300"]}}`, false},
	{`1`, `{"retry":{"ladder":[60,[300]]}}`, false},
	{`1`, `{"retry":{"ladder":[60,{}]}}`, false},
	{`1`, `{"retry":{"ladder":60}}`, false},
	{`1`, `{"retry":{"ladder":{}}}`, false},
	{`1`, `{"retry":{"ladder":"60"}}`, false},
	{`1`, `{"retry":{"ladder":[60],"unit":1}}`, false},
	{`1`, `{"retry":{"ladder":[60],"unit":null}}`, true},
	{`1`, `{"retry":{"ladder":[60],"unit":1,"unit":null}}`, true},
	{`1`, `{"retry":{"ladder":[60],"unit":null,"unit":1}}`, false},
	{`1`, `{"retry":{"ladder":[60],"ladder":[],"unit":1}}`, true},
	{`1`, `{"retry":{"ladder":[],"ladder":[60],"unit":1}}`, false},
	{`1`, `{"retry":{"unit":0}}`, false},
	{`1`, `{"retry":{"unit":-0}}`, false},
	{`1`, `{"retry":{"unit":1e-6}}`, true},
	{`1`, `{"retry":{"unit":0.0000005}}`, false},
	{`1`, `{"retry":{"unit":0.0000006}}`, true},
	{`1`, `{"retry":{"unit":"1"}}`, false},
	{`1`, `{"retry":{"unit":true}}`, false},
	{`1`, `{"retry":{"unit":[1]}}`, false},
	{`1`, `{"retry":{"unit":5e-324}}`, false},
	{`1`, `{"retry":{"max":0}}`, false},
	{`1`, `{"retry":{"max":31622401}}`, false},
	{`1`, `{"retry":{"max":3600,"max":0}}`, false},
	{`1`, `{"retry":{"max":0,"max":3600}}`, true},
	{`1`, `{"retry":{"m\u0061x":0}}`, false},
	{`1`, `{"retry":{"Max":3600}}`, false},
	{`1`, `{"retry":{"attempts":0}}`, false},
	{`1`, `{"retry":{"attempts":1.0}}`, true},
	{`1`, `{"retry":{"attempts":1e1}}`, true},
	{`1`, `{"retry":{"attempts":1.5}}`, false},
	{`1`, `{"retry":{"attempts":-1}}`, false},
	{`1`, `{"retry":{"attempts":1000000}}`, true},
	{`1`, `{"retry":{"attempts":1000001}}`, false},
	{`1`, `{"retry":{"attempts":1000000.00000000001}}`, true},
	{`1`, `{"retry":{"attempts":99999999999999999999}}`, false},
	{`1`, `{"retry":{"attempts":"10"}}`, false},
	{`1`, `{"retry":{"jitter":1.01}}`, false},
	{`1`, `{"retry":{"jitter":1e-1}}`, true},
	{`1`, `{"retry":{"jitter":5e-324}}`, true},
	{`1`, `{"retry":{"jitter":1e-324}}`, false},
	{`1`, `{"retry":{"jitter":-0.0}}`, true},
	{`1`, `{"retry":{"jitter":-0.1}}`, false},
	{`1`, `{"retry":{"jitter":"0.1"}}`, false},
	{`1`, `{"retry":{"colour":"red"}}`, false},
	{`1`, `{"retry":{"colour":null}}`, false},
	{`1`, `{"retry":{"":1}}`, false},
	{`1`, `{"retry":{"jitter":0.1,"\ud800":1}}`, false},
	{`1`, `{"retry":{"ladder":[` + strings.Repeat("1,", 99) + `1]}}`, true},
	{`1`, `{"retry":{"ladder":[` + strings.Repeat("1,", 100) + `1]}}`, false},
	{`1`, `{"retry":{"ladder":[0.` + strings.Repeat("0", 17_000) + `1]}}`, false},
	{`1`, `{"retry":{"ladder":[1.` + strings.Repeat("0", 17_000) + `1]}}`, true},
	{`1`, `{"encoding":"gzip"}`, false},
	{`1`, `{"encoding":"BASE64"}`, false},
	{`1`, `{"encoding":5}`, false},
	{`1`, `{"encoding":""}`, true},
	{`"AP8="`, `{"encoding":"base64"}`, true},
	{`"AP8"`, `{"encoding":"base64"}`, false},
	{`"AP8=="`, `{"encoding":"base64"}`, false},
	{`"AP8=AP8="`, `{"encoding":"base64"}`, false},
	{`"A P8="`, `{"encoding":"base64"}`, false},
	{`"A\r\nP8="`, `{"encoding":"base64"}`, true},
	{`"A\nP\n8=\n"`, `{"encoding":"base64"}`, true},
	{`"AA=\n="`, `{"encoding":"base64"}`, true},
	{`"A-_="`, `{"encoding":"base64"}`, false},
	{`"\u0041P8="`, `{"encoding":"base64"}`, true},
	{`"AP\u0000="`, `{"encoding":"base64"}`, false},
	{`"\ud800"`, `{"encoding":"base64"}`, false},
	{`""`, `{"encoding":"base64"}`, true},
	{`null`, `{"encoding":"base64"}`, true},
	{`5`, `{"encoding":"base64"}`, false},
	{`["AP8="]`, `{"encoding":"base64"}`, false},
	{string(nested(512)), `{}`, true},
	{string(nested(513)), `{}`, false},
	{strings.Repeat(`{"[":`, 512) + `"]}"` + strings.Repeat(`}`, 512), `{}`, true},
	{strings.Repeat(`{"a":`, 513) + `1` + strings.Repeat(`}`, 513), `{}`, false},
	{`[` + strings.Repeat(`[[],{}],`, 2000) + `"\"[[["]`, `{}`, true},
	{`[` + strings.Repeat(`{"key \\\"[":"value ]","n":[1,2,3]},`, 6000) + `1]`, `{}`, true},
	{`"` + strings.Repeat(`\\[`, 80_000) + `"`, `{}`, true},
	{`[` + strings.Repeat(`"",`, 80_000) + `1]`, `{}`, true},
	{`1`, `{"a":` + string(nested(511)) + `}`, true},
	{`1`, `{"a":` + string(nested(512)) + `}`, false},
}

func TestSQLAndGoTakeTheSamePayloads(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, v := range verdicts {
		if sameVerdict(t, pool, v.args, v.meta) != v.want {
			t.Errorf("args %.80s, meta %.80s: accepted is %v, want %v", v.args, v.meta, !v.want, v.want)
		}
	}
	// Both SQL functions check args and meta.
	for _, meta := range []string{`{"encoding":"base64"}`, `{"retry":{"max":0}}`} {
		for _, sql := range []string{
			`select * from taskledger.enqueue('bad', 'enqueue', '"A"', meta => '` + meta + `')`,
			`select * from taskledger.enqueue_many('[{"kind":"bad","biz_id":"many","args":"A","meta":` + meta + `}]')`,
		} {
			_, err := pool.Exec(t.Context(), sql)
			if code := sqlState(err); code != "22023" {
				t.Errorf("%s: SQLSTATE %q, %v", sql, code, err)
			}
		}
	}
}

func FuzzPayloadVerdict(f *testing.F) {
	pool := fuzzedPool(f)
	for _, v := range verdicts {
		f.Add(v.args, v.meta)
	}
	f.Fuzz(func(t *testing.T, args, meta string) {
		if ledger.CheckJSON("", json.RawMessage(args)) != nil || ledger.CheckJSON("", json.RawMessage(meta)) != nil {
			return // PostgreSQL rejects the text, too
		}
		sameVerdict(t, pool, args, meta)
	})
}

// SQL accepts a retry policy if and only if Go accepts it.
func FuzzRetryVerdict(f *testing.F) {
	pool := fuzzedPool(f)
	for _, v := range verdicts {
		if policy, ok := strings.CutPrefix(v.meta, `{"retry":`); ok {
			f.Add(strings.TrimSuffix(policy, "}"))
		}
	}
	f.Fuzz(func(t *testing.T, policy string) {
		if ledger.CheckJSON("", json.RawMessage(policy)) != nil {
			return // PostgreSQL rejects the text, too
		}
		sameVerdict(t, pool, "1", `{"retry":`+policy+`}`)
	})
}

// The error of a SQL function for an invalid time names it.
func TestBadTimesAreRefused(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, test := range []struct{ field, argument, member string }{
		{"run_at", `run_at => 'infinity'`, `"run_at":"infinity"`},
		{"run_at", `run_at => '-infinity'`, `"run_at":"-infinity"`},
		{"run_at", `run_at => '9999-01-01T00:00:00Z'`, `"run_at":"9999-01-01T00:00:00Z"`},
		{"start_by", `start_by => 'infinity'`, `"start_by":"infinity"`},
		{"start_by", `start_by => '9998-12-31T23:30:00-01:00'`, `"start_by":"9998-12-31T23:30:00-01:00"`},
		{"finish_by", `finish_by => '10000-01-01'`, `"finish_by":"10000-01-01"`},
		{"run_in", `run_in => '-1 second'`, `"run_in":"-1 second"`},
		{"run_in", `run_in => '293 years'`, `"run_in":"293 years"`},
		{"run_in", `run_in => '1 second', run_at => now()`, `"run_in":"1 second","run_at":"2030-01-01"`},
		{"run_at", ``, `"run_at":"tomorrow at tea"`},
		{"run_at", ``, `"run_at":5`},
		{"finish_by", ``, `"finish_by":"2030-02-30"`},
		{"start_by", ``, `"start_by":"2030-01-01T00:00:00+99:00"`},
		{"run_in", ``, `"run_in":"soon"`},
		{"run_in", ``, `"run_in":"1e30 years"`},
	} {
		for _, sql := range []string{
			`select * from taskledger.enqueue('bad', '1', ` + test.argument + `)`,
			`select * from taskledger.enqueue_many('[{"kind": "bad", "biz_id": "1", ` + test.member + `}]')`,
		} {
			if strings.HasSuffix(sql, ", )") {
				continue // the type of the argument rejects it
			}
			_, err := pool.Exec(t.Context(), sql)
			if code := sqlState(err); code != "22023" || !strings.Contains(err.Error(), "invalid "+test.field) {
				t.Errorf("%s: SQLSTATE %q, %v", sql, code, err)
			}
		}
	}
	if rows := storedRows(t, pool); len(rows) != 0 {
		t.Errorf("rows were written: %v", rows)
	}
}
