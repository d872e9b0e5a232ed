// Promrules holds a rule file and queries against Prometheus' own rule parser and query engine.
//
// It reads a file of unit tests for rules, in the part of promtool's format that is needed here
// (https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/), checks the rule files that it names, and
// runs its tests; annotations that are expected are left to promtool. Promtool itself does the same, but takes a quarter of an hour to compile: it carries the clients of every
// cloud. Exit code 1 when something is not as it should be, with one line on stdout for each thing.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

type testFile struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []test         `yaml:"tests"`
}

type test struct {
	Name        string         `yaml:"name"`
	Interval    model.Duration `yaml:"interval"`
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Alerts []struct {
		EvalTime  model.Duration `yaml:"eval_time"`
		AlertName string         `yaml:"alertname"`
		Expected  []struct {
			Labels map[string]string `yaml:"exp_labels"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
	Queries []struct {
		Expr     string         `yaml:"expr"`
		EvalTime model.Duration `yaml:"eval_time"`
		Expected []struct {
			Labels string  `yaml:"labels"`
			Value  float64 `yaml:"value"`
		} `yaml:"exp_samples"`
	} `yaml:"promql_expr_test"`
}

var (
	read   = parser.NewParser(parser.Options{})
	engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: read})
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: promrules TESTS.yaml")
		os.Exit(2)
	}
	faults, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, fault := range faults {
		fmt.Println(fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

func run(path string) (faults []string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file testFile
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, err
	}
	rules := map[string]rulefmt.Rule{}
	for _, name := range file.RuleFiles {
		groups, errs := rulefmt.ParseFile(filepath.Join(filepath.Dir(path), name), false, model.LegacyValidation, read, slog.Default())
		for _, err := range errs {
			faults = append(faults, err.Error())
		}
		if groups == nil {
			continue
		}
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				rules[rule.Alert] = rule
			}
		}
	}
	if len(faults) > 0 {
		return faults, nil
	}
	for _, test := range file.Tests {
		series, err := test.series()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", test.Name, err)
		}
		for _, query := range test.Queries {
			got, err := ask(series, query.Expr, time.Duration(query.EvalTime))
			if err != nil {
				faults = append(faults, fmt.Sprintf("%s: %s: %v", test.Name, query.Expr, err))
				continue
			}
			want := map[string]float64{}
			for _, sample := range query.Expected {
				metric, err := read.ParseMetric(sample.Labels)
				if err != nil {
					return nil, err
				}
				want[metric.String()] = sample.Value
			}
			if !same(got, want) {
				faults = append(faults, fmt.Sprintf("%s: %s is %v and should be %v", test.Name, query.Expr, got, want))
			}
		}
		for _, alert := range test.Alerts {
			rule, known := rules[alert.AlertName]
			if !known {
				faults = append(faults, fmt.Sprintf("%s: there is no alert %s", test.Name, alert.AlertName))
				continue
			}
			got, err := firing(series, rule, time.Duration(alert.EvalTime), time.Duration(file.EvaluationInterval))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", test.Name, alert.AlertName, err)
			}
			var want []string
			for _, each := range alert.Expected {
				want = append(want, labels.FromMap(each.Labels).String())
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				faults = append(faults, fmt.Sprintf("%s: %s at %s fires for %v and should for %v", test.Name, alert.AlertName, alert.EvalTime, got, want))
			}
		}
	}
	return faults, nil
}

func (t test) series() ([]promql.Series, error) {
	var all []promql.Series
	for _, input := range t.InputSeries {
		metric, values, err := read.ParseSeriesDesc(input.Series + " " + input.Values)
		if err != nil {
			return nil, err
		}
		series := promql.Series{Metric: metric}
		for n, value := range values {
			if !value.Omitted {
				at := int64(n) * time.Duration(t.Interval).Milliseconds()
				series.Floats = append(series.Floats, promql.FPoint{T: at, F: value.Value})
			}
		}
		all = append(all, series)
	}
	return all, nil
}

// ask returns the query's answer at that time, by labels.
func ask(series []promql.Series, expr string, at time.Duration) (map[string]float64, error) {
	queryable := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			set := &seriesSet{}
			for _, each := range series {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(each.Metric.Get(m.Name)) }) {
					set.series = append(set.series, promql.NewStorageSeries(each))
				}
			}
			return set
		},
	}}
	query, err := engine.NewInstantQuery(context.Background(), queryable, nil, expr, time.UnixMilli(at.Milliseconds()))
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		return nil, result.Err
	}
	vector, err := result.Vector()
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for _, sample := range vector {
		found[sample.Metric.String()] = sample.F
	}
	return found, nil
}

// firing returns the labels of the alerts that fire: whose condition held at each evaluation for as long as the rule wants.
func firing(series []promql.Series, rule rulefmt.Rule, at, interval time.Duration) ([]string, error) {
	held := map[string]int{}
	looks := 0
	for when := max(0, at-time.Duration(rule.For)); when <= at; when += interval {
		found, err := ask(series, rule.Expr, when)
		if err != nil {
			return nil, err
		}
		looks++
		for metric := range found {
			held[metric]++
		}
	}
	var all []string
	for text, count := range held {
		if count == looks && at >= time.Duration(rule.For) {
			metric, err := read.ParseMetric(text)
			if err != nil {
				return nil, err
			}
			builder := labels.NewBuilder(metric).Del(labels.MetricName)
			for name, value := range rule.Labels {
				builder.Set(name, value)
			}
			all = append(all, builder.Labels().String())
		}
	}
	slices.Sort(all)
	return all, nil
}

func same(got, want map[string]float64) bool {
	if len(got) != len(want) {
		return false
	}
	for metric, value := range want {
		if other, there := got[metric]; !there || math.Abs(other-value) > 1e-9*math.Abs(value) {
			return false
		}
	}
	return true
}

// seriesSet walks over what was selected.
type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next <= len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.next-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
