package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/bench"
)

// newBenchCommand is hidden: it is for those who work on taskledger.
func (a *app) newBenchCommand() *cobra.Command {
	var c bench.Config
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure the main path on servers of its own, with fsync on",
		Long:    "Measure the main path on servers of its own, with fsync on. Measures: " + strings.Join(bench.Names(), ", ") + ".",
		Example: "  taskledger bench --only drain-exactly-once",
		Hidden:  true,
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.View = a.stderr
			r, err := bench.Run(cmd.Context(), c)
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) {
				t := newTable([]any{"measure", "value", "unit"}, 2)
				for _, f := range r.Figures {
					t.AppendRow([]any{f.Measure, fmt.Sprintf("%.1f", f.Value), f.Unit})
				}
				renderTable(w, t)
				fmt.Fprintf(w, "%s, %d cores, PostgreSQL settings beside the defaults: %v\n", r.Go, r.Cores, r.Settings)
			})
		},
	}
	cmd.Flags().StringSliceVar(&c.Only, "only", nil, "measures to take (default: all)")
	cmd.Flags().Float64Var(&c.Scale, "scale", 1, "of the sizes")
	cmd.Flags().DurationVar(&c.Lasts, "lasts", 8*time.Second, "how long the measures by time take")
	return cmd
}
