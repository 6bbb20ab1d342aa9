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
		select taskledger_internal.check_nesting('args', $1::text), taskledger_internal.check_nesting('meta', $2::text),
		       taskledger_internal.check_meta($2::text::json, $1::text::json)`, args, meta)
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
	{args: `1`, meta: `{}`, want: true},
	{args: `1`, meta: `{"traceparent":"00-1-2-01","tracestate":"a=b","causation":"x","tags":["a",""]}`, want: true},
	{
		args: `1`, meta: `{"traceparent":null,"tracestate":null,"causation":null,"tags":null,"encoding":null}`,
		want: true,
	},
	{args: `1`, meta: `{"traceparent":5}`, want: false},
	{args: `1`, meta: `{"tracestate":["a"]}`, want: false},
	{args: `1`, meta: `{"causation":{}}`, want: false},
	{args: `1`, meta: `{"tags":"a"}`, want: false},
	{args: `1`, meta: `{"tags":["a",1]}`, want: false},
	{args: `1`, meta: `{"tags":["a",null]}`, want: true},
	{args: `1`, meta: `{"Traceparent":5,"Tags":5,"Encoding":5}`, want: true},
	{args: `1`, meta: `{"\u0074ags":5}`, want: false},
	{args: `1`, meta: `{"tags":5,"tags":[]}`, want: true},
	{args: `1`, meta: `{"tags":[],"tags":5}`, want: false},
	{args: `1`, meta: `{"later":[{"a":1}]}`, want: true},
	{args: `1`, meta: `{"a":"\u0000"}`, want: false},
	{args: `1`, meta: `{"a":"\\u0000"}`, want: true},
	{args: `1`, meta: `{"a":"\\\u0000"}`, want: false},
	{args: `1`, meta: `{"a":"\ud83d\ude00"}`, want: true},
	{args: `1`, meta: `{"a":"\ud83d"}`, want: false},
	{args: `1`, meta: `{"a":"\ud83dx\ude00"}`, want: false},
	{args: `1`, meta: `{"a":"\ude00"}`, want: false},
	{args: `1`, meta: `{"\u0000":1}`, want: false},
	{args: `1`, meta: `{"run_at":"2030-01-01T00:00:00Z"}`, want: false},
	{args: `1`, meta: `{"start_by":"2030-01-01T00:00:00Z"}`, want: false},
	{args: `1`, meta: `{"finish_by":"2030-01-01T00:00:00Z"}`, want: false},
	{args: `1`, meta: `{"run_at":5}`, want: false},
	{args: `1`, meta: `{"retry":null}`, want: true},
	{args: `1`, meta: `{"retry":{}}`, want: true},
	{args: `1`, meta: `{"retry":""}`, want: false},
	{args: `1`, meta: `{"retry":"exponential"}`, want: false},
	{args: `1`, meta: `{"retry":5}`, want: false},
	{args: `1`, meta: `{"retry":[]}`, want: false},
	{args: `1`, meta: `{"retry":[60,300]}`, want: false},
	{args: `1`, meta: `{"retry":true}`, want: false},
	{
		args: `1`, meta: `{"retry":{"ladder":[60,300,1200],"unit":null,"max":3600,"attempts":10,"jitter":0.2}}`,
		want: true,
	},
	{args: `1`, meta: `{"retry":{"unit":0.1,"max":5400,"attempts":10,"jitter":0.25}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[60,300,1200]}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[60,300,1200],"attempts":1000000,"jitter":1}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[0,0.0,-0,5400.5,1e-4,0.000007,0.0000001],"jitter":0}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[]}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[],"unit":1}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":null,"unit":1}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[31622400]}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[3.16224E+7]}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[31622400.0000004]}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[31622400.000001]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[1e30]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[1e400]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[-1e400]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[1e-400]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[0e-99999,0e99999]}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[1e-20000]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[60,-1]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[60,-0.0000001]}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[60,null]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[60,"300"]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[60,[300]]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[60,{}]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":60}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":{}}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":"60"}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[60],"unit":1}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[60],"unit":null}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[60],"unit":1,"unit":null}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[60],"unit":null,"unit":1}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[60],"ladder":[],"unit":1}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[],"ladder":[60],"unit":1}}`, want: false},
	{args: `1`, meta: `{"retry":{"unit":0}}`, want: false},
	{args: `1`, meta: `{"retry":{"unit":-0}}`, want: false},
	{args: `1`, meta: `{"retry":{"unit":1e-6}}`, want: true},
	{args: `1`, meta: `{"retry":{"unit":0.0000005}}`, want: false},
	{args: `1`, meta: `{"retry":{"unit":0.0000006}}`, want: true},
	{args: `1`, meta: `{"retry":{"unit":"1"}}`, want: false},
	{args: `1`, meta: `{"retry":{"unit":true}}`, want: false},
	{args: `1`, meta: `{"retry":{"unit":[1]}}`, want: false},
	{args: `1`, meta: `{"retry":{"unit":5e-324}}`, want: false},
	{args: `1`, meta: `{"retry":{"max":0}}`, want: false},
	{args: `1`, meta: `{"retry":{"max":31622401}}`, want: false},
	{args: `1`, meta: `{"retry":{"max":3600,"max":0}}`, want: false},
	{args: `1`, meta: `{"retry":{"max":0,"max":3600}}`, want: true},
	{args: `1`, meta: `{"retry":{"m\u0061x":0}}`, want: false},
	{args: `1`, meta: `{"retry":{"Max":3600}}`, want: false},
	{args: `1`, meta: `{"retry":{"attempts":0}}`, want: false},
	{args: `1`, meta: `{"retry":{"attempts":1.0}}`, want: true},
	{args: `1`, meta: `{"retry":{"attempts":1e1}}`, want: true},
	{args: `1`, meta: `{"retry":{"attempts":1.5}}`, want: false},
	{args: `1`, meta: `{"retry":{"attempts":-1}}`, want: false},
	{args: `1`, meta: `{"retry":{"attempts":1000000}}`, want: true},
	{args: `1`, meta: `{"retry":{"attempts":1000001}}`, want: false},
	{args: `1`, meta: `{"retry":{"attempts":1000000.00000000001}}`, want: true},
	{args: `1`, meta: `{"retry":{"attempts":99999999999999999999}}`, want: false},
	{args: `1`, meta: `{"retry":{"attempts":"10"}}`, want: false},
	{args: `1`, meta: `{"retry":{"jitter":1.01}}`, want: false},
	{args: `1`, meta: `{"retry":{"jitter":1e-1}}`, want: true},
	{args: `1`, meta: `{"retry":{"jitter":5e-324}}`, want: true},
	{args: `1`, meta: `{"retry":{"jitter":1e-324}}`, want: false},
	{args: `1`, meta: `{"retry":{"jitter":-0.0}}`, want: true},
	{args: `1`, meta: `{"retry":{"jitter":-0.1}}`, want: false},
	{args: `1`, meta: `{"retry":{"jitter":"0.1"}}`, want: false},
	{args: `1`, meta: `{"retry":{"colour":"red"}}`, want: false},
	{args: `1`, meta: `{"retry":{"colour":null}}`, want: false},
	{args: `1`, meta: `{"retry":{"":1}}`, want: false},
	{args: `1`, meta: `{"retry":{"jitter":0.1,"\ud800":1}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[` + strings.Repeat("1,", 99) + `1]}}`, want: true},
	{args: `1`, meta: `{"retry":{"ladder":[` + strings.Repeat("1,", 100) + `1]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[0.` + strings.Repeat("0", 17_000) + `1]}}`, want: false},
	{args: `1`, meta: `{"retry":{"ladder":[1.` + strings.Repeat("0", 17_000) + `1]}}`, want: true},
	{args: `1`, meta: `{"encoding":"gzip"}`, want: false},
	{args: `1`, meta: `{"encoding":"BASE64"}`, want: false},
	{args: `1`, meta: `{"encoding":5}`, want: false},
	{args: `1`, meta: `{"encoding":""}`, want: true},
	{args: `"\u0000"`, meta: `{}`, want: true},
	{args: `"\ud800"`, meta: `{"encoding":null}`, want: true},
	{args: `"\u0000"`, meta: `{"encoding":"base64"}`, want: false},
	{args: `"AP8="`, meta: `{"encoding":"base64"}`, want: true},
	{args: `"AP8"`, meta: `{"encoding":"base64"}`, want: false},
	{args: `"AP8=="`, meta: `{"encoding":"base64"}`, want: false},
	{args: `"AP8=AP8="`, meta: `{"encoding":"base64"}`, want: false},
	{args: `"A P8="`, meta: `{"encoding":"base64"}`, want: false},
	{args: `"A\r\nP8="`, meta: `{"encoding":"base64"}`, want: true},
	{args: `"A\nP\n8=\n"`, meta: `{"encoding":"base64"}`, want: true},
	{args: `"AA=\n="`, meta: `{"encoding":"base64"}`, want: true},
	{args: `"A-_="`, meta: `{"encoding":"base64"}`, want: false},
	{args: `"\u0041P8="`, meta: `{"encoding":"base64"}`, want: true},
	{args: `"AP\u0000="`, meta: `{"encoding":"base64"}`, want: false},
	{args: `"\ud800"`, meta: `{"encoding":"base64"}`, want: false},
	{args: `""`, meta: `{"encoding":"base64"}`, want: true},
	{args: `null`, meta: `{"encoding":"base64"}`, want: true},
	{args: `5`, meta: `{"encoding":"base64"}`, want: false},
	{args: `["AP8="]`, meta: `{"encoding":"base64"}`, want: false},
	{args: string(nested(512)), meta: `{}`, want: true},
	{args: string(nested(513)), meta: `{}`, want: false},
	{args: strings.Repeat(`{"[":`, 512) + `"]}"` + strings.Repeat(`}`, 512), meta: `{}`, want: true},
	{args: strings.Repeat(`{"a":`, 513) + `1` + strings.Repeat(`}`, 513), meta: `{}`, want: false},
	{args: `[` + strings.Repeat(`[[],{}],`, 2000) + `"\"[[["]`, meta: `{}`, want: true},
	{args: `[` + strings.Repeat(`{"key \\\"[":"value ]","n":[1,2,3]},`, 6000) + `1]`, meta: `{}`, want: true},
	{args: `"` + strings.Repeat(`\\[`, 80_000) + `"`, meta: `{}`, want: true},
	{args: `[` + strings.Repeat(`"",`, 80_000) + `1]`, meta: `{}`, want: true},
	{args: `1`, meta: `{"a":` + string(nested(511)) + `}`, want: true},
	{args: `1`, meta: `{"a":` + string(nested(512)) + `}`, want: false},
}

func TestSQLAndGoTakeTheSamePayloads(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
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
		{field: "run_at", argument: `run_at => 'infinity'`, member: `"run_at":"infinity"`},
		{field: "run_at", argument: `run_at => '-infinity'`, member: `"run_at":"-infinity"`},
		{field: "run_at", argument: `run_at => '9999-01-01T00:00:00Z'`, member: `"run_at":"9999-01-01T00:00:00Z"`},
		{
			field: "run_at", argument: `run_at => taskledger_internal.end_of_time()`,
			member: `"run_at":"9998-12-31T23:59:59.999999Z"`,
		},
		{field: "start_by", argument: `start_by => 'infinity'`, member: `"start_by":"infinity"`},
		{
			field: "start_by", argument: `start_by => '9998-12-31T23:30:00-01:00'`,
			member: `"start_by":"9998-12-31T23:30:00-01:00"`,
		},
		{field: "finish_by", argument: `finish_by => '10000-01-01'`, member: `"finish_by":"10000-01-01"`},
		{field: "run_in", argument: `run_in => '-1 second'`, member: `"run_in":"-1 second"`},
		{field: "run_in", argument: `run_in => '293 years'`, member: `"run_in":"293 years"`},
		{
			field: "run_in", argument: `run_in => '1 second', run_at => now()`,
			member: `"run_in":"1 second","run_at":"2030-01-01"`,
		},
		{field: "run_at", argument: ``, member: `"run_at":"tomorrow at tea"`},
		{field: "run_at", argument: ``, member: `"run_at":5`},
		{field: "finish_by", argument: ``, member: `"finish_by":"2030-02-30"`},
		{field: "start_by", argument: ``, member: `"start_by":"2030-01-01T00:00:00+99:00"`},
		{field: "run_in", argument: ``, member: `"run_in":"soon"`},
		{field: "run_in", argument: ``, member: `"run_in":"1e30 years"`},
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
