import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Requests that are executed once, however often they are sent, for JDBC and Tutti.
 *
 * <p>Owns: the attempts at one request: their numbers, and which errors another may follow. Never: chooses the
 * request's name, or where to connect: the caller does. Start reading at {@link #executeOnce}. The protocol is
 * docs/protocol/exactly-once.md.
 */
public final class TuttiRequest {
    /** Opens a connection to whichever gateway serves; called for each attempt. */
    @FunctionalInterface
    public interface Connector {
        Connection connect() throws SQLException;
    }

    /**
     * What a request does, over a connection in a transaction that it neither commits nor rolls back. Returns what its
     * client is to be told, may be called several times, and is committed once.
     */
    @FunctionalInterface
    public interface Work {
        String run(Connection connection) throws SQLException;
    }

    /** It is not known what became of the request: no attempt in time was answered. It may be executed again. */
    public static final class NoAnswerException extends SQLException {
        private static final long serialVersionUID = 1L;

        NoAnswerException(String name, SQLException cause) {
            super("no answer to request \"" + name + "\"", "08007", cause);
        }
    }

    /** Nothing was committed, or it is not known: the next attempt finds out. (Class 08 as well.) */
    private static final Set<String> RETRIED =
            Set.of("40001", "40P01", "40000", "57P01", "57P02", "57P03", "55006", "53300", "55P03", "25P03");

    /** The longest pause between attempts that end soon. */
    private static final long PAUSE_MS = 1_000;

    private TuttiRequest() {}

    /**
     * Executes a request once, and returns what its one execution has returned.
     *
     * @param name the request's; all attempts at it, of this process and others, have the same
     * @param isFirst nobody can have tried this request before: a question to the cluster is saved
     * @param patience how long to try
     * @throws NoAnswerException nobody knows what became of it
     * @throws SQLException errors that no attempt can help, and what {@code work} throws
     */
    public static String executeOnce(
            Connector connector, String name, Work work, boolean isFirst, Duration patience)
            throws SQLException {
        Instant giveUp = Instant.now().plus(patience);
        long instance = isFirst ? 1 : number();
        long pauseMs = 10;
        long longestMs = 0;
        while (true) {
            Instant begun = Instant.now();
            try {
                return attempt(connector, name, instance, work);
            } catch (SQLException error) {
                if (!isRetried(error.getSQLState())) {
                    throw error;
                }
                if (giveUp.isBefore(Instant.now())) {
                    throw new NoAnswerException(name, error);
                }
            }
            // Another client of the same request ends this attempt, and this one that one's: the longer they have
            // come, the longer one of them is to be left alone.
            longestMs = Math.max(longestMs, ChronoUnit.MILLIS.between(begun, Instant.now()));
            try {
                Thread.sleep(pauseMs / 2 + ThreadLocalRandom.current().nextLong(pauseMs));
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new NoAnswerException(name, new SQLException(interrupted));
            }
            pauseMs = Math.min(2 * pauseMs, Math.max(PAUSE_MS, 4 * longestMs));
            instance = Math.max(number(), Math.max(instance, latest(connector, name)) + 1);
        }
    }

    /** A number that is larger than that of any attempt before, as far as clocks agree: microseconds. */
    private static long number() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    /** The largest number that is known of the request's attempts: another process's clock may be ahead. */
    private static long latest(Connector connector, String name) {
        long latest = 0;
        try (Connection connection = connector.connect();
                PreparedStatement known =
                        connection.prepareStatement("SELECT tutti.tutti_request(?)")) {
            known.setString(1, name);
            try (ResultSet rows = known.executeQuery()) {
                while (rows.next()) {
                    latest = Math.max(latest, rows.getLong(1));
                }
            }
        } catch (SQLException unknown) {
            return 0;
        }
        return latest;
    }

    /** {@code null}: the driver had no answer of a server's. */
    private static boolean isRetried(String sqlstate) {
        return sqlstate == null || sqlstate.startsWith("08") || RETRIED.contains(sqlstate);
    }

    private static String attempt(Connector connector, String name, long instance, Work work)
            throws SQLException {
        // Closed in any case: what it has not committed is over with it.
        try (Connection connection = connector.connect()) {
            // The driver's own BEGIN comes first; this is then the first statement of its transaction.
            connection.setAutoCommit(false);
            try (PreparedStatement begin =
                    connection.prepareStatement("SELECT tutti.tutti_begin(?, ?)")) {
                begin.setString(1, name);
                begin.setLong(2, instance);
                try (ResultSet rows = begin.executeQuery()) {
                    rows.next();
                    if (rows.getString(1).equals("committed")) {
                        String result = rows.getString(3);
                        connection.rollback();
                        return result;
                    }
                }
            }
            String result = work.run(connection);
            try (PreparedStatement remember =
                    connection.prepareStatement("SELECT tutti.tutti_remember(?)")) {
                remember.setString(1, result);
                remember.execute();
            }
            // Not commit(): what a driver makes of a COMMIT that was answered by ROLLBACK differs.
            try (Statement commit = connection.createStatement()) {
                commit.execute("COMMIT");
            }
            return result;
        }
    }
}
