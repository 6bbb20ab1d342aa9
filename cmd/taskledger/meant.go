package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// meant are the commands by words of other programs. A command that takes a task is called with KIND and BIZ_ID.
var meant = map[string]string{
	"why": "show task", "explain": "show task", "describe": "show task", "get": "show task", "inspect": "show task",
	"info": "show task", "list": "show tasks", "ls": "show tasks", "ps": "show tasks", "find": "show tasks",
	"jobs": "show tasks", "job": "show task", "queue": "show kinds", "queues": "show kinds",
	"failures": "show dead", "failed": "show dead", "errors": "show dead", "dlq": "show dead",
	"log": "events --follow", "logs": "events --follow", "tail": "events --follow", "follow": "events --follow",
	"run-again": "release", "rerun": "release", "requeue": "release", "redo": "release", "restart": "release",
	"resurrect": "release", "unbury": "release", "retry-task": "release",
	"kill": "cancel", "abort": "cancel", "remove": "cancel", "rm": "cancel", "drop": "cancel",
	"postpone": "reschedule", "snooze": "reschedule", "delay": "reschedule",
	"submit": "enqueue", "add": "enqueue", "push": "enqueue", "new": "enqueue", "insert": "enqueue",
	"copy": "clone", "duplicate": "clone", "stop": "pause kind", "unpause": "resume kind", "continue": "resume kind",
	"env": "url database", "dsn": "url database", "database": "url database", "connection": "url database",
	"sql": "url database", "psql": "url database", "nats": "url nats",
	"stats": "status", "metrics": "status", "monitor": "top", "dashboard": "open", "console": "open", "ui": "open",
	"web": "open", "login": "open", "check": "doctor", "health": "doctor", "diagnose": "doctor",
	"init": "migrate", "setup": "migrate", "upgrade": "migrate", "start": "serve", "up": "serve", "server": "serve",
	"backup": "export", "dump": "export", "prune": "archive", "purge": "archive", "clean": "archive",
}

// meantOfTasks are the commands for tasks by groups of commands for other objects.
var meantOfTasks = map[string]string{"retry": "release", "run": "release", "discard": "cancel", "create": "enqueue"}

// ofTask are the commands that take a task.
var ofTask = []string{"show task", "release", "cancel", "reschedule", "enqueue", "clone", "bury", "wait"}

// reads are words for the command show behind the name of an object.
var reads = []string{"show", "list", "ls", "get", "why", "explain", "describe", "inspect", "info", "status"}

// meaning returns the command that a person probably meant with words that are no command of cmd, "" if unknown. The
// words may begin with the object, as in task cancel and kind list.
func meaning(cmd *cobra.Command, words []string) string {
	if cmd.HasParent() {
		to, isKnown := meantOfTasks[cmd.Name()]
		switch isTask := isObject(words[0], "task"); {
		case !isKnown, !isTask && len(words) == 1 && !strings.Contains(words[0], "/"):
			return ""
		case isTask:
			words = words[1:]
		}
		return commandLine(cmd.Root(), to, words)
	}
	show := find(cmd, "show")
	if slices.Contains(reads, words[0]) && len(words) > 1 {
		if _, err := findObject(show, words[1]); err == nil { // list kinds
			words = words[1:]
		}
	}
	object, err := findObject(show, words[0])
	if err != nil {
		if to, isKnown := meant[words[0]]; isKnown {
			return commandLine(cmd, to, words[1:])
		}
		return ""
	}
	if len(words) == 1 {
		return commandLine(cmd, "show "+object, nil)
	}
	verb, rest := words[1], words[2:]
	one := strings.TrimSuffix(object, "s")
	to := find(cmd, verb)
	switch {
	case slices.Contains(reads, verb) && len(rest) > 0:
		return commandLine(cmd, "show "+one, rest)
	case slices.Contains(reads, verb):
		return commandLine(cmd, "show "+object, nil)
	case to != nil && slices.ContainsFunc(objectsOf(to), func(o string) bool { return isObject(one, o) }),
		to != nil && find(to, one) != nil:
		return commandLine(cmd, verb+" "+one, rest)
	case to != nil && meantOfTasks[verb] == "":
		return commandLine(cmd, verb, rest)
	case meantOfTasks[verb] != "":
		return commandLine(cmd, meantOfTasks[verb], rest)
	case meant[verb] != "":
		return commandLine(cmd, meant[verb], rest)
	}
	return commandLine(cmd, "show "+one, words[1:])
}

// find returns the command with a name directly below cmd, or nil.
func find(cmd *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(cmd.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name })
	if i < 0 {
		return nil
	}
	return cmd.Commands()[i]
}

// commandLine returns a command with arguments for a shell.
func commandLine(root *cobra.Command, command string, args []string) string {
	line := root.Name() + " " + command
	if len(args) == 0 && slices.Contains(ofTask, command) {
		line += " KIND BIZ_ID"
	}
	for _, arg := range args {
		line += " " + shellWord(arg)
	}
	return line
}
