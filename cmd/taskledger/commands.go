package main

import "github.com/spf13/cobra"

// commandGroup is a group of commands in the help of the program.
type commandGroup struct {
	id, title string
	commands  []*cobra.Command
}

// addCommands adds all commands to root, in groups.
func (a *app) addCommands(root *cobra.Command) {
	for _, g := range a.commandGroups() {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.id
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("run")
	root.SetCompletionCommandGroupID("run")
	root.AddCommand(newDemoChildCommand(a), newExitCodesTopic())
}

func (a *app) commandGroups() []commandGroup {
	return []commandGroup{
		{"see", "Inspecting:", []*cobra.Command{
			newShowCommand(a), newStatusCommand(a), newTopCommand(a), newHistoryCommand(a), newTreeCommand(a),
			newEventsCommand(a),
		}},
		{"tasks", "Tasks:", []*cobra.Command{
			newEnqueueCommand(a), newWaitCommand(a), newReleaseCommand(a), newRescheduleCommand(a), newCancelCommand(a),
			newBuryCommand(a), newCloneCommand(a), newImportCommand(a),
		}},
		{"kinds", "Kinds and schedules:", []*cobra.Command{
			newPauseCommand(a), newResumeCommand(a), newDeleteCommand(a), newLimitCommand(a),
			group(&cobra.Command{Use: "apply", Short: "Apply a file of schedules"}, newApplySchedulesCommand(a)),
			group(&cobra.Command{Use: "run", Short: "Enqueue a task of a schedule now"}, newRunScheduleCommand(a)),
		}},
		{"readers", "Subscribers and the stream:", []*cobra.Command{
			group(&cobra.Command{Use: "seek", Short: "Move a subscriber"}, newSeekSubscriberCommand(a)),
			group(&cobra.Command{Use: "retry", Short: "Publish or handle parked events again"},
				newRetryParkedCommand(a)),
			newDiscardCommand(a),
			group(&cobra.Command{Use: "rebuild", Short: "Rebuild tables, or the stream"},
				newRebuildTablesCommand(a), newRebuildStreamCommand(a)),
		}},
		{"history", "History and proof:", []*cobra.Command{
			newStateCommand(a), newReplayCommand(a), newWhatIfCommand(a), newArchiveCommand(a), newExportCommand(a),
			newEraseCommand(a), newSealCommand(a), newProveCommand(a),
			group(&cobra.Command{Use: "verify", Short: "Verify tables, or the seal"},
				newVerifyTablesCommand(a), newVerifySealCommand(a)),
		}},
		{"run", "Running taskledger:", []*cobra.Command{
			newServeCommand(a), newOpenCommand(a), newMigrateCommand(a), newDoctorCommand(a), newDemoCommand(a),
			newRebaseCommand(a),
			newNATSConfigCommand(a),
			newURLCommand(a),
			group(&cobra.Command{Use: "create", Short: "Make a token of the HTTP API"}, newCreateTokenCommand(a)),
			group(&cobra.Command{Use: "test", Short: "Send a test alarm"}, newTestAlarmsCommand(a)),
		}},
	}
}
