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

// config is what the command line says.
type config struct {
	quick       bool
	force       bool
	only        []string
	scale       float64
	rounds      int
	output      string
	csv         string
	databaseURL string
	binaries    string
	tuned       bool // tune with -quick too
	noSync      bool // for the tests of this program only
}

var errHelp = errors.New("help was asked for")

// parse reads the command line. Every fault is reported at once.
func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	var only string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&c.quick, "quick", false, "smaller sizes and fewer rounds: under four minutes")
	f.StringVar(&only, "only", "", "measures to take, separated by commas: "+strings.Join(names(), ", "))
	f.IntVar(&c.rounds, "rounds", 0, "times each system takes its turn (default 3, with -quick 2)")
	f.Float64Var(&c.scale, "scale", 1, "multiplies every size and duration, for trying the benchmark itself")
	f.StringVar(&c.output, "o", "table", "output: table or json")
	f.StringVar(&c.csv, "csv", "", "write every single sample to this file")
	f.StringVar(&c.databaseURL, "database-url", "", "a PostgreSQL server to use instead of one of its own, as superuser; databases are made beside the one named")
	f.BoolVar(&c.tuned, "tune", false, "with -quick, choose the best settings of each system first, as the full run does")
	f.BoolVar(&c.force, "force", false, "measure even though the database of -database-url holds data")
	f.StringVar(&c.binaries, "pg-bin", "", "directory of postgres, initdb and pgbench (default: searched)")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return c, errHelp
	} else if err != nil {
		return c, err
	}
	c.only = strings.FieldsFunc(only, func(r rune) bool { return r == ',' || r == ' ' })
	return c, c.validate(f.Args())
}

func (c config) validate(rest []string) error {
	var faults []error
	if len(rest) > 0 {
		faults = append(faults, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	for _, name := range c.only {
		if !slices.Contains(names(), name) {
			faults = append(faults, fmt.Errorf("no measure %q: there are %s", name, strings.Join(names(), ", ")))
		}
	}
	if c.output != "table" && c.output != "json" {
		faults = append(faults, fmt.Errorf("-o must be table or json, is %q", c.output))
	}
	if c.scale <= 0 || c.scale > 100 {
		faults = append(faults, fmt.Errorf("-scale must be more than 0 and at most 100, is %g", c.scale))
	}
	if c.rounds < 0 || c.rounds > 100 {
		faults = append(faults, fmt.Errorf("-rounds must be 1 to 100, is %d", c.rounds))
	}
	if u, err := url.Parse(c.databaseURL); c.databaseURL != "" && (err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql") {
		faults = append(faults, errors.New("-database-url must look like postgres://user@host/database"))
	}
	return errors.Join(faults...)
}

// turns is how many times each system takes its turn.
func (c config) turns() int {
	switch {
	case c.rounds > 0:
		return c.rounds
	case c.quick:
		return 2
	}
	return 3
}

// size is how many of something: full, or quick with -quick.
func (c config) size(full, quick int) int {
	if c.quick {
		full = quick
	}
	return max(1, int(float64(full)*c.scale))
}

// lasts is how long the measures take that run for a time.
func (c config) lasts() time.Duration {
	d := 8 * time.Second
	if c.quick {
		d = time.Second
	}
	return max(100*time.Millisecond, time.Duration(float64(d)*c.scale))
}
