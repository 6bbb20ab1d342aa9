package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// config contains the values of the command line.
type config struct {
	quick       bool
	force       bool
	only        []string
	scale       float64
	rounds      int
	output      string
	csv         string
	report      []string // runs whose figures to write into the documentation
	databaseURL string
	binaries    string
	tuned       bool // tune, although quick
	noSync      bool // fsync off, for the tests of this program only
}

var errHelp = errors.New("help requested")

// parse parses the command line. Its error reports every fault.
func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	var only, runs string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&c.quick, "quick", false, "the measures of the ratios, smaller, in fewer rounds: less than six minutes")
	f.StringVar(&only, "only", "", "measures to run, separated by commas: "+strings.Join(names(), ", "))
	f.IntVar(&c.rounds, "rounds", 0, "number of rounds (default 3, with -quick 2)")
	f.Float64Var(&c.scale, "scale", 1, "factor of every size and duration")
	f.StringVar(&c.output, "o", "table", "output: table or json")
	f.StringVar(&runs, "report", "", "write the figures of these runs, files with the output of -o json separated by "+
		"commas, into "+docsDir+"; measures nothing")
	f.StringVar(&c.csv, "csv", "", "write every sample to this file")
	f.StringVar(&c.databaseURL, "database-url", "",
		"PostgreSQL server to use, as superuser (default: start one); creates databases next to the given one")
	f.BoolVar(&c.tuned, "tune", false, "with -quick, choose the best settings of each system first, like the full run")
	f.BoolVar(&c.force, "force", false, "run although the database of -database-url has data")
	f.StringVar(&c.binaries, "pg-bin", "", "directory of postgres, initdb and pgbench (default: search)")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return c, errHelp
	} else if err != nil {
		return c, err
	}
	isSeparator := func(r rune) bool { return r == ',' || r == ' ' }
	c.only, c.report = strings.FieldsFunc(only, isSeparator), strings.FieldsFunc(runs, isSeparator)
	return c, c.validate(f.Args())
}

func (c config) validate(rest []string) error {
	var faults []error
	if len(rest) > 0 {
		faults = append(faults, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	for _, name := range c.only {
		if !slices.Contains(names(), name) {
			faults = append(faults, fmt.Errorf("-only must list measures, got %q; measures: %s",
				name, strings.Join(names(), ", ")))
		}
	}
	if c.output != "table" && c.output != "json" {
		faults = append(faults, fmt.Errorf("-o must be table or json, got %q", c.output))
	}
	if c.scale <= 0 || c.scale > 100 {
		faults = append(faults, fmt.Errorf("-scale must be greater than 0 and at most 100, got %g", c.scale))
	}
	if c.rounds < 0 || c.rounds > 100 {
		faults = append(faults, fmt.Errorf("-rounds must be between 1 and 100, got %d", c.rounds))
	}
	u, err := url.Parse(c.databaseURL)
	if c.databaseURL != "" && (err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql") {
		faults = append(faults, errors.New("-database-url must be an address such as postgres://user@host/database"))
	}
	return errors.Join(faults...)
}

// roundCount returns the number of rounds; each system has one trial in each round.
func (c config) roundCount() int {
	switch {
	case c.rounds > 0:
		return c.rounds
	case c.quick:
		return 2
	}
	return 3
}

// size returns full, or quick with -quick, times the scale.
func (c config) size(full, quick int) int {
	if c.quick {
		full = quick
	}
	return max(1, int(float64(full)*c.scale))
}

// duration returns how long a trial with a given duration runs.
func (c config) duration() time.Duration {
	d := 8 * time.Second
	if c.quick {
		d = time.Second
	}
	return max(100*time.Millisecond, time.Duration(float64(d)*c.scale))
}
