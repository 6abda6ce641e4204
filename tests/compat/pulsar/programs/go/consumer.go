package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	guard      = 120 * time.Second
	shownBytes = 4096
)

var types = map[string]pulsar.SubscriptionType{
	"": pulsar.Exclusive, "Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover,
	"Shared": pulsar.Shared, "Key_Shared": pulsar.KeyShared,
}

// received has the messages of a consumer or a reader, by their numbers.
type received struct {
	next func(context.Context) (pulsar.Message, error)
	held map[int]pulsar.Message
	last int
}

func (r *received) receive(one command) (answer, error) {
	within := guard
	if one.WithinMs > 0 {
		within = milliseconds(one.WithinMs)
	}
	limited, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	messages := []answer{}
	for len(messages) < max(1, one.Count) {
		found, err := r.next(limited)
		if errors.Is(err, context.DeadlineExceeded) || (err != nil && limited.Err() != nil) {
			break
		} else if err != nil {
			return nil, err
		}
		messages = append(messages, r.kept(found))
	}
	return answer{"messages": messages}, nil
}

func (r *received) kept(found pulsar.Message) answer {
	r.last++
	r.held[r.last] = found
	properties := found.Properties()
	if properties == nil {
		properties = map[string]string{}
	}
	return answer{
		"n":            r.last,
		"id":           idOf(found.ID()),
		"partition":    found.ID().PartitionIdx(),
		"topic":        found.Topic(),
		"value":        shown(found.Payload()),
		"key":          orNull(found.Key()),
		"orderingKey":  orNull(found.OrderingKey()),
		"properties":   properties,
		"publishMs":    millisecondsOf(found.PublishTime()),
		"eventMs":      millisecondsOf(found.EventTime()),
		"redeliveries": found.RedeliveryCount(),
		"producer":     found.ProducerName(),
	}
}

func shown(payload []byte) string {
	if len(payload) <= shownBytes {
		return string(payload)
	}
	return fmt.Sprintf("sha256:%x:%d", sha256.Sum256(payload), len(payload))
}

type consumer struct {
	received
	name     string
	consumer pulsar.Consumer
}

func subscribed(client pulsar.Client, one command) (*consumer, error) {
	options := pulsar.ConsumerOptions{
		Topic:                          one.Topic,
		Topics:                         one.Topics,
		TopicsPattern:                  one.Pattern,
		AutoDiscoveryPeriod:            time.Duration(one.DiscoveryS) * time.Second,
		SubscriptionName:               one.Subscription,
		Type:                           types[one.Type],
		Name:                           one.Name,
		StartMessageIDInclusive:        one.Inclusive,
		EnableBatchIndexAcknowledgment: one.IndexAck,
		AckWithResponse:                one.Receipts,
		NackRedeliveryDelay:            milliseconds(one.NackMs),
		RetryEnable:                    one.Retry,
		MaxPendingChunkedMessage:       one.MaxChunked,
		AutoAckIncompleteChunk:         one.AckChunked,
	}
	if one.Earliest {
		options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	}
	if one.Durable != nil && !*one.Durable {
		options.SubscriptionMode = pulsar.NonDurable
	}
	if one.Queue != nil {
		options.ReceiverQueueSize = *one.Queue
	}
	if one.GroupMs != nil {
		options.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: milliseconds(*one.GroupMs)}
	}
	if one.BackoffMs != nil {
		options.NackBackoffPolicy = backoff(one.BackoffMs)
	}
	if one.DeadLetter != nil {
		options.DLQ = &pulsar.DLQPolicy{
			MaxDeliveries:           one.DeadLetter.Max,
			DeadLetterTopic:         one.DeadLetter.Topic,
			RetryLetterTopic:        one.DeadLetter.RetryTopic,
			InitialSubscriptionName: one.DeadLetter.Subscription,
		}
	}
	if one.Ranges != nil {
		var flat []int
		for _, bounds := range one.Ranges {
			flat = append(flat, bounds[0], bounds[1])
		}
		policy, err := pulsar.NewKeySharedPolicySticky(flat)
		if err != nil {
			return nil, err
		}
		options.KeySharedPolicy = policy
	}
	if one.Type == "Failover" {
		options.EventListener = listener(one.Of)
	}
	made, err := client.Subscribe(options)
	if err != nil {
		return nil, err
	}
	return &consumer{received{made.Receive, map[int]pulsar.Message{}, 0}, one.Of, made}, nil
}

// backoff has the first and the longest delay in milliseconds; each is twice the one before it.
type backoff []int

func (b backoff) Next(redeliveries uint32) time.Duration {
	return min(milliseconds(b[0])<<min(redeliveries, 20), milliseconds(b[1]))
}

type listener string

func (l listener) BecameActive(_ pulsar.Consumer, _ string, partition int32) {
	say(answer{"active": true, "of": string(l), "partition": partition})
}

func (l listener) BecameInactive(_ pulsar.Consumer, _ string, partition int32) {
	say(answer{"active": false, "of": string(l), "partition": partition})
}

func (c *consumer) carryOut(one command) (answer, error) {
	switch one.Do {
	case "receive":
		return c.receive(one)
	case "ack", "nack":
		for _, number := range one.numbers() {
			found := c.held[number]
			delete(c.held, number)
			if one.Do == "nack" {
				c.consumer.Nack(found)
			} else if err := c.consumer.Ack(found); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "drain":
		return nil, c.drain(one)
	case "ackCumulative":
		return nil, c.consumer.AckCumulative(c.held[one.Message])
	case "reconsume":
		c.consumer.ReconsumeLater(c.held[one.Message], milliseconds(one.DelayMs))
		return nil, nil
	case "seek":
		return nil, seek(one.To, c.consumer.Seek, c.consumer.SeekByTime)
	case "lastId":
		ids, err := c.consumer.GetLastMessageIDs()
		if err != nil {
			return nil, err
		}
		return answer{"last": idOf(ids[0])}, nil
	case "unsubscribe":
		if one.Force {
			return nil, c.consumer.UnsubscribeForce()
		}
		return nil, c.consumer.Unsubscribe()
	case "close":
		c.consumer.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("a consumer cannot %s", one.Do)
}

// drain receives so many messages and acknowledges each, or all so far after every so many.
func (c *consumer) drain(one command) error {
	limited, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	for number := 1; number <= one.Count; number++ {
		found, err := c.consumer.Receive(limited)
		if err != nil {
			return err
		}
		if one.AckEvery == 0 {
			err = c.consumer.Ack(found)
		} else if number%one.AckEvery == 0 {
			err = c.consumer.AckCumulative(found)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func seek(to json.RawMessage, byID func(pulsar.MessageID) error, byTime func(time.Time) error) error {
	var when int64
	if json.Unmarshal(to, &when) == nil {
		return byTime(time.UnixMilli(when))
	}
	var text string
	check(json.Unmarshal(to, &text))
	id, err := idFrom(text)
	if err != nil {
		return err
	}
	return byID(id)
}

type reader struct {
	received
	reader pulsar.Reader
}

func newReader(client pulsar.Client, one command) (*reader, error) {
	start, err := idFrom(one.Start)
	if err != nil {
		return nil, err
	}
	made, err := client.CreateReader(pulsar.ReaderOptions{
		Topic: one.Topic, StartMessageID: start, StartMessageIDInclusive: one.Inclusive,
	})
	if err != nil {
		return nil, err
	}
	return &reader{received{made.Next, map[int]pulsar.Message{}, 0}, made}, nil
}

func (r *reader) carryOut(one command) (answer, error) {
	switch one.Do {
	case "receive":
		return r.receive(one)
	case "hasNext":
		return answer{"next": r.reader.HasNext()}, nil
	case "seek":
		return nil, seek(one.To, r.reader.Seek, r.reader.SeekByTime)
	case "lastId":
		id, err := r.reader.GetLastMessageID()
		if err != nil {
			return nil, err
		}
		return answer{"last": idOf(id)}, nil
	case "close":
		r.reader.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("a reader cannot %s", one.Do)
}
